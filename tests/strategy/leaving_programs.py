"""A training that one worker leaves by an exception, in a program that goes on."""

import contextlib

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps

_ROWS = np.random.default_rng(0).normal(size=[40, 6]).astype("float32")


class Failing(keras.callbacks.Callback):
    """Raises on worker 0, as a full disk would, at an event of the second epoch."""

    def __init__(self, event):
        super().__init__()
        self._event = event
        self._epoch = -1

    def _happens(self, event):
        if event == self._event and self._epoch == 1 and bps.rank() == 0:
            raise OSError("no space left")

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        self._happens("batch")

    def on_epoch_end(self, epoch, logs=None):
        self._happens("epoch")


def left_by_an_exception(distributed_optimizer=False):
    """The program catches what ends its training, and trains again."""
    if distributed_optimizer:
        bps.init()
        scope, optimizer = (
            contextlib.nullcontext(),
            bps.DistributedOptimizer(keras.optimizers.SGD()),
        )
    else:
        scope, optimizer = bps.BytePSStrategy().scope(), "sgd"
    keras.utils.set_random_seed(7)
    with scope:
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
        model.compile(optimizer, "mse")
    said = []
    for event in ("batch", "epoch", None):
        callbacks = [Failing(event)]
        try:
            model.fit(
                *(_ROWS, _ROWS[:, :1]),
                batch_size=10,
                epochs=2,
                shuffle=False,
                validation_data=(_ROWS, _ROWS[:, :1]),
                callbacks=callbacks,
                verbose=0,
            )
        except (OSError, tf.errors.OpError) as error:
            said.append(f"{type(error).__name__}: {error}")
    total = bps.push_pull(tf.constant(1.0), op=bps.Sum)
    return {
        "weights": [weight.tolist() for weight in model.get_weights()],
        "said": said,
        "total": float(total),
    }
