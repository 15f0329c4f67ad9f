"""Runs a Python block of the documentation on the workers of test_blocks.py."""

import os
import pathlib
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf

import tf_byteps

sys.path.append(str(pathlib.Path(__file__).parent))

from blocks import block  # noqa: E402

_ROWS, _NUMBERS, _CLASSES = 96, 64, 10


def _images():
    return np.random.default_rng(0).normal(size=(_ROWS, _NUMBERS)).astype("float32")


def _labels():
    return _images()[:, :_CLASSES].argmax(axis=1)


def build_model():
    """A model that nobody has compiled."""
    layers = [keras.layers.Dense(16, "relu"), keras.layers.Dense(_CLASSES, "softmax")]
    return keras.Sequential([keras.Input([_NUMBERS]), *layers])


def _model():
    """One that trains with the strategy."""
    with tf_byteps.BytePSStrategy().scope():
        model = build_model()
        model.compile("adam", "sparse_categorical_crossentropy")
    return model


def _dataset():
    return tf.data.Dataset.from_tensor_slices((_images(), _labels())).batch(24)


def _batches_of(epoch):
    """The batches of an epoch, with labels for a model with ten outputs and a squared error."""
    return _dataset().map(lambda images, labels: (images, tf.one_hot(labels, _CLASSES)))


# What a block may be given, each made when it is asked for.
MAKE = {
    "keras": lambda: keras,
    "tf": lambda: tf,
    "tf_byteps": lambda: tf_byteps,
    "build_model": lambda: build_model,
    "batches_of": lambda: _batches_of,
    "images": _images,
    "labels": _labels,
    "model": _model,
    "dataset": _dataset,
}


def run(name):
    """Runs a block in an empty folder, and leaves the job that it has joined."""
    program = block(name)
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            if program.is_after_init:
                tf_byteps.init()
            variables = {each: MAKE[each]() for each in program.given}
            exec(compile(program.text, name, "exec"), {"__name__": "__main__", **variables})
            workers = tf_byteps.size()
        finally:
            os.chdir(before)
            tf_byteps.shutdown()
            keras.backend.clear_session()
    return workers
