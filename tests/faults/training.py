"""A training that somebody is lost from; see test_training.py."""

import time

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps


def fit_until_a_fault():
    """Trains for longer than the test waits; returns the error and when it came."""
    with bps.BytePSStrategy().scope():
        model = keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(2)])
        model.compile("sgd", "mse")

    class Announce(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                print("working", flush=True)

    rows = np.ones((640, 4), np.float32), np.ones((640, 2), np.float32)
    try:
        model.fit(*rows, batch_size=32, epochs=100_000, verbose=0, callbacks=[Announce()])
    except tf.errors.UnavailableError as error:
        when = time.monotonic()
        bps.shutdown()
        return [str(error), when]
    return None
