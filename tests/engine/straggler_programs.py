"""What the workers of test_stragglers.py run."""

import hashlib
import time

import numpy as np

import tf_byteps
from tests.cluster import wait_until
from tf_byteps import _engine

SLOW = 2
ELEMENTS = 2000
TENSORS = 4


def train(steps, pause, backup_workers):
    """Steps of a computation that takes `pause` seconds, three times as long on one rank.

    Returns:
        A digest of the weights after each step, when each step ended, and the lags.
    """
    tf_byteps.init()
    rank = tf_byteps.rank()
    weights = [np.zeros(ELEMENTS, np.float32) for _ in range(TENSORS)]
    random = np.random.default_rng(rank)
    _exchange_all(weights, 0)  # declared, and connected
    digests, ends = [], [time.monotonic()]
    for _ in range(steps):
        time.sleep(pause * (3 if rank == SLOW else 1))
        gradients = [random.normal(size=ELEMENTS).astype(np.float32) for _ in weights]
        for weight, average in zip(weights, _exchange_all(gradients, backup_workers)):
            weight -= average
        ends.append(time.monotonic())
        digests.append(hashlib.sha256(b"".join(w.tobytes() for w in weights)).hexdigest())
    wait_until(lambda: _reported() == tf_byteps.size() * TENSORS * (steps + 1))
    lags = tf_byteps.arrival_lags()
    tf_byteps.shutdown()
    return {"digests": digests, "ends": ends, "lags": lags}


def _reported():
    """How many contributions of all workers the servers have reported."""
    return sum(lag["contributions"] for lag in tf_byteps.arrival_lags())


def others_wait():
    """What is not an average of gradients waits for all: sums, maxima, broadcasts, gathers."""
    tf_byteps.init()
    rank = tf_byteps.rank()
    results = []
    for kind in ("sum", "max", "broadcast", "gather"):
        if rank == SLOW:
            time.sleep(0.3)
        begin = time.monotonic()
        given = np.full(2, rank + 1, np.float32)
        root = {"root_rank": SLOW} if kind == "broadcast" else {}
        result = _engine.exchange(given, name=kind, kind=kind, **root).wait(30)
        results.append([result.tolist(), time.monotonic() - begin])
    return results


def refused():
    """Backup workers in a deterministic job, and of what is not a sum or an average."""
    tf_byteps.init()
    messages = []
    for given in ({"average": True}, {"kind": "sum"}, {"kind": "max"}, {"kind": "gather"}):
        name = "-".join(map(str, given.values()))
        handle = _engine.exchange(np.ones(2, np.float32), name=name, backup_workers=1, **given)
        try:
            handle.wait(30)
        except _engine.EngineError as error:
            messages.append(str(error))
    return messages


def _exchange_all(arrays, backup_workers):
    handles = [
        _engine.exchange(
            array, name=f"gradient {index}", average=True, backup_workers=backup_workers
        )
        for index, array in enumerate(arrays)
    ]
    return [handle.wait(60) for handle in handles]
