"""What the workers of the tests of access run; without TensorFlow."""

import os
import time

import numpy as np

import tf_byteps
from tf_byteps import _engine

SECONDS = 40
TENSORS = 8
ELEMENTS = 20_000


def joins():
    """The sum over all workers, or why this one could not take part."""
    try:
        tf_byteps.init()
    except tf_byteps.BytePSError as error:
        return str(error)
    array = np.full(1000, tf_byteps.rank() + 1, np.float32)
    return float(_engine.exchange(array, name="t").wait(SECONDS)[0])


def steps(stop_file, pause):
    """Steps of several tensors, whose sums are checked, until a file is there.

    One begins every `pause` seconds, or later if the one before takes longer.

    Returns:
        Pairs of when a step began (`time.time()`) and how long it took.
    """
    tf_byteps.init()
    rank, size = tf_byteps.rank(), tf_byteps.size()
    taken = []
    stops, number = False, 0
    while not stops:
        begin = time.time()
        given = [
            np.full(ELEMENTS, (rank + 1) * (number % 100 + n), np.float32) for n in range(TENSORS)
        ]
        handles = [_engine.exchange(array, name=f"t{n}") for n, array in enumerate(given)]
        for n, handle in enumerate(handles):
            expected = (number % 100 + n) * size * (size + 1) / 2
            assert (handle.wait(SECONDS) == expected).all(), (number, n)
        taken.append((begin, time.time() - begin))
        if number == 0:
            print("ready", flush=True)
        # All workers stop after the same step.
        seen = np.full(1, os.path.exists(stop_file), np.float32)
        stops = _engine.exchange(seen, name="stop", kind="max").wait(SECONDS)[0] > 0
        time.sleep(max(0.0, begin + pause - time.time()))
        number += 1
    return taken
