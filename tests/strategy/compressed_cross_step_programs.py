"""Trainings with compressed gradients across steps, which test_compressed_cross_step.py compares
with plain ones."""

import hashlib
import warnings

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.errors import error_of
from tests.strategy.compressed_programs import _only_kernels

# Sums of floats must not depend on how threads share them.
tf.config.threading.set_intra_op_parallelism_threads(1)

# By what the test calls them. What rounds stochastically follows from names, which differ here.
COMPRESSIONS = {
    **{name: name for name in ("none", "fp16", "int8")},
    "topk": "topk:ratio=0.1",
    "kernels": _only_kernels,
}


COMPILED = ("int8",)


class KeepsTensor(bps.ops.Compressor):
    """Leaves a tensor for `decompress`."""

    @staticmethod
    def compress(tensor):
        largest = tf.reduce_max(tf.abs(tensor))
        return tensor / largest, largest

    @staticmethod
    def decompress(tensor, context):
        return tensor * context


def _rows():
    random = np.random.default_rng(1)
    x = random.integers(0, 50, size=(512, 8))
    return x, np.sin(x.sum(1, keepdims=True)).astype(np.float32)


def _fit(compression, cross_step, jit_compile):
    keras.utils.set_random_seed(1)
    strategy = bps.BytePSStrategy(compression=compression, cross_step=cross_step)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input([8], dtype="int32"),
                keras.layers.Embedding(50, 16),
                keras.layers.Flatten(),
                keras.layers.Dense(32, "tanh"),
                keras.layers.Dense(1),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01), "mse", jit_compile=jit_compile)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x, y = _rows()
        history = model.fit(x, y, batch_size=32, epochs=2, verbose=0, shuffle=False)
    return model, history.history["loss"]


def train():
    """Digests of all weights, the weights, and losses, of each way and compression."""
    bps.init()
    results = {}
    for name, compression in COMPRESSIONS.items():
        for jit_compile in (False, True) if name in COMPILED else (False,):
            for cross_step in (False, True):
                model, losses = _fit(compression, cross_step, jit_compile)
                weights = np.concatenate([each.ravel() for each in model.get_weights()])
                results[f"{name} {jit_compile} {cross_step}"] = {
                    "digest": hashlib.sha256(weights.tobytes()).hexdigest(),
                    "weights": weights[::37].tolist(),
                    "losses": losses,
                }
    results["refused"] = error_of(_fit, KeepsTensor, True, False)
    bps.shutdown()
    return results
