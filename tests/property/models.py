"""Small models with data, and training steps, that the cases choose from."""

import importlib

import keras
import numpy as np
from keras import layers, ops

_WORDS, LENGTH = 7, 4


def _numbers(rows, *shape, seed):
    return np.random.RandomState(seed).normal(size=(rows, *shape)).astype(keras.config.floatx())


def _dense(model_class, rows):
    x = keras.Input([5])
    model = model_class(x, layers.Dense(1)(layers.Dense(4, "tanh")(x)))
    return model, (_numbers(rows, 5, seed=1), _numbers(rows, 1, seed=2))


def _convolution(model_class, rows):
    x = keras.Input([4, 4, 1])
    hidden = layers.Flatten()(layers.Conv2D(2, 3, activation="tanh")(x))
    model = model_class(x, layers.Dense(1)(hidden))
    return model, (_numbers(rows, 4, 4, 1, seed=1), _numbers(rows, 1, seed=2))


class UnitLength(layers.Layer):
    """Not a number for a row of zeros."""

    def call(self, x):
        return x / ops.norm(x, axis=-1, keepdims=True)


def _unit_length(model_class, rows):
    x = keras.Input([5])
    model = model_class(x, layers.Dense(1)(UnitLength()(layers.Dense(3, use_bias=False)(x))))
    return model, (_numbers(rows, 5, seed=1), _numbers(rows, 1, seed=2))


class Penalty(layers.Layer):
    def call(self, x):
        self.add_loss(0.1 * ops.mean(ops.square(x)))
        return x


def _penalties(model_class, rows):
    x = keras.Input([5])
    hidden = layers.LayerNormalization()(layers.Dense(4, "tanh", kernel_regularizer="l2")(x))
    model = model_class(x, layers.Dense(1)(Penalty()(hidden)))
    return model, (_numbers(rows, 5, seed=1), _numbers(rows, 1, seed=2))


def _embedding(model_class, rows):
    x = keras.Input([LENGTH], dtype="int32")
    hidden = layers.Flatten()(layers.Embedding(_WORDS, 3)(x))
    words = np.random.RandomState(1).randint(_WORDS, size=(rows, LENGTH))
    return model_class(x, layers.Dense(1)(hidden)), (words, _numbers(rows, 1, seed=2))


def _masked(model_class, rows):
    """Sequences of different lengths; some are all padding."""
    x = keras.Input([LENGTH], dtype="int32")
    hidden = layers.SimpleRNN(3, return_sequences=True)(
        layers.Embedding(_WORDS, 3, mask_zero=True)(x)
    )
    random = np.random.RandomState(1)
    words = random.randint(1, _WORDS, size=(rows, LENGTH))
    words[np.arange(LENGTH) >= random.randint(LENGTH + 1, size=(rows, 1))] = 0
    return model_class(x, layers.Dense(1)(hidden)), (words, _numbers(rows, LENGTH, 1, seed=2))


def _two_outputs(model_class, rows):
    x = keras.Input([5])
    hidden = layers.Dense(4, "tanh")(x)
    model = model_class(x, [layers.Dense(1)(hidden), layers.Dense(2)(hidden)])
    return model, (_numbers(rows, 5, seed=1), [_numbers(rows, n, seed=n) for n in (1, 2)])


MODELS = {
    "dense": _dense,
    "convolution": _convolution,
    "unit_length": _unit_length,
    "penalties": _penalties,
    "embedding": _embedding,
    "masked": _masked,
    "two_outputs": _two_outputs,
}


class ComputeLoss(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        penalties = sum(ops.cast(penalty, y.dtype) for penalty in self.losses)
        return ops.mean(ops.square(ops.cast(y_pred, y.dtype) - y)) + penalties


_OWN = importlib.import_module(f"tests.property.own_steps_of_{keras.backend.backend()}")
STEPS = {"mean": _OWN.MeanStep, "object": _OWN.ObjectStep, "compute_loss": ComputeLoss}
