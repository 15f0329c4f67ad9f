"""What the workers of test_compiled.py do when one of them is lost."""

import os
import time

import tensorflow as tf

import tf_byteps as bps


def survive():
    """Worker 1 ends within compiled steps; what worker 0 sees, and whether it goes on without."""
    bps.init()

    @tf.function(jit_compile=True)
    def step(x):
        return bps.push_pull([x, 2 * x, 3 * x], op="sum", name="steps")

    x = tf.ones([100000])
    for _ in range(3):
        step(x)
    if bps.rank() == 1:
        os._exit(3)
    begin = time.monotonic()
    try:
        while True:
            step(x)
    except tf.errors.OpError as error:
        return [type(error).__name__, error.message, time.monotonic() - begin]
