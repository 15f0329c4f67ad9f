"""What the workers of test_shuffle.py do."""

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps


class Pairs(keras.Model):
    """Notes the rows of this worker's pieces, epoch by epoch."""

    def __init__(self):
        super().__init__()
        self.epochs = []

    def call(self, x):
        return x

    def train_step(self, data):
        def record(x):
            self.epochs[-1] += x.tolist()
            return np.float32(0.0)

        return {"loss": tf.numpy_function(record, [data[0]], tf.float32)}


class NewEpoch(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.model.epochs.append([])


def _recorded(strategy, *args, epochs=3, **options):
    with strategy.scope():
        model = Pairs()
        model.compile("sgd", "mse")
    model.fit(*args, **options, epochs=epochs, verbose=0, callbacks=[NewEpoch()])
    return [list(map(tuple, epoch)) for epoch in model.epochs]


def two_shuffles():
    """Two datasets shuffled on two lines: the pairs of each epoch's numbers."""
    strategy = bps.BytePSStrategy()
    with strategy.scope():
        first = tf.data.Dataset.range(12).shuffle(12)
        second = tf.data.Dataset.range(12).shuffle(12)
    del strategy
    return [
        list(zip(first.as_numpy_iterator(), second.as_numpy_iterator(), strict=True))
        for _ in range(3)
    ]


def random_datasets():
    strategy = bps.BytePSStrategy()
    first = tf.data.Dataset.random().take(4)
    second = tf.data.Dataset.random().take(4)
    del strategy
    return list(first.as_numpy_iterator()), list(second.as_numpy_iterator())


def zipped():
    """Two shuffled halves of a pipeline, zipped as for a CycleGAN, in `fit`."""
    strategy = bps.BytePSStrategy()
    numbers = np.arange(32.0, dtype="float32")
    horses = tf.data.Dataset.from_tensor_slices(numbers).shuffle(32)
    zebras = tf.data.Dataset.from_tensor_slices(numbers).shuffle(32)
    pairs = tf.data.Dataset.zip(horses, zebras).map(lambda a, b: (tf.stack([a, b]), b))
    return _recorded(strategy, pairs.batch(8))
