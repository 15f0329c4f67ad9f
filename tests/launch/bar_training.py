"""Trainings with Keras's bar: `python -m tests.launch.bar_training strategy|optimizer|own`."""

import contextlib
import sys

import keras
import numpy as np

import tf_byteps as bps


def train(how):
    """Trains, evaluates and predicts; "own": each worker has a bar among its callbacks."""
    bps.init()
    optimizer, scope = keras.optimizers.SGD(0.1), contextlib.nullcontext()
    if how == "optimizer":
        optimizer = bps.DistributedOptimizer(optimizer)
    else:
        scope = bps.BytePSStrategy().scope()
    with scope:
        model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
        model.compile(optimizer, "mse")
    rows = np.ones([32, 4], np.float32)
    own = [keras.callbacks.ProgbarLogger()] if how == "own" else []
    model.fit(rows, rows[:, :1], batch_size=8, epochs=2, verbose=1, callbacks=own)
    model.evaluate(rows, rows[:, :1], batch_size=8, verbose=1)
    model.predict(rows, batch_size=8, verbose=1)
    print("done", flush=True)


if __name__ == "__main__":
    train(sys.argv[1])
