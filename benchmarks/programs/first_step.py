"""A worker that takes one step and writes down when it was over, by CLOCK_MONOTONIC.

python -m benchmarks.programs.first_step FOLDER exchange|keras
"""

import pathlib
import sys
import time

import numpy as np


def exchange():
    """An exchange of one tensor; needs no TensorFlow."""
    import tf_byteps
    from tf_byteps import _engine

    tf_byteps.init()
    _engine.exchange(np.ones(1000, np.float32), name="gradient/x").wait(60)


def keras():
    """A step of Model.fit."""
    import keras

    import tf_byteps.keras as bps

    bps.init()
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(4)])
    model.compile(bps.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    inputs = np.ones((8, 16), np.float32)
    model.fit(inputs, np.ones((8, 4), np.float32), batch_size=8, verbose=0)


STEPS = {"exchange": exchange, "keras": keras}


def take(folder, step):
    """Takes the step; the name of the file is the worker's rank."""
    STEPS[step]()
    import tf_byteps

    (pathlib.Path(folder) / str(tf_byteps.rank())).write_text(str(time.monotonic()))


if __name__ == "__main__":
    take(*sys.argv[1:])
