"""Trainings with compressed gradients, which test_compressed_training.py compares."""

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps

_BATCH = 64
_STEPS = 200


def _only_kernels(variable):
    return "int8" if len(variable.shape) > 1 else None


# By what test_compressed_training.py calls them.
_COMPRESSIONS = {
    **{name: name for name in ("none", "int8", "fp8", "int4", "onebit", "dithering", "thc")},
    "topk": "topk:ratio=0.1",
    "kernels": _only_kernels,
}


def _rows():
    random = np.random.default_rng(1)
    x = random.normal(size=(2048, 16)).astype(np.float32)
    y = np.sin(x @ random.normal(size=(16, 4))).astype(np.float32)
    return x, y


def _model():
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(64, activation="tanh"), keras.layers.Dense(4)]
    return keras.Sequential([keras.Input([16]), *layers])


def _fit(compression):
    strategy = bps.BytePSStrategy(compression=compression)
    with strategy.scope():
        model = _model()
        model.compile(keras.optimizers.Adam(0.01), "mse")
    x, y = _rows()
    model.fit(x, y, batch_size=_BATCH, epochs=_STEPS * _BATCH // len(x), verbose=0, shuffle=False)
    return model


def _with_optimizer(compression):
    model = _model()
    adam = keras.optimizers.Adam(0.01)
    model.compile(bps.DistributedOptimizer(adam, compression=compression), "mse")
    x, y = _rows()
    mine = slice(bps.rank(), None, bps.size())
    size = _BATCH // bps.size()
    model.fit(x[mine], y[mine], size, epochs=_STEPS * _BATCH // len(x), verbose=0, shuffle=False)
    return model


def _with_tape(compression):
    model = _model()
    adam = keras.optimizers.Adam(0.01)
    adam.build(model.trainable_variables)
    x, y = (tf.constant(each[bps.rank() :: bps.size()]) for each in _rows())

    @tf.function(autograph=False)
    def step(first):
        rows = tf.range(first, first + _BATCH // bps.size())
        with tf.GradientTape() as tape:
            error = model(tf.gather(x, rows)) - tf.gather(y, rows)
            loss = tf.reduce_mean(tf.square(error))
        tape = bps.DistributedGradientTape(tape, compression=compression)
        adam.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    for number in range(_STEPS):
        step(tf.constant(number * (_BATCH // bps.size()) % len(x)))
    return model


def train_all():
    """Losses on all rows, and what the weights add up to, of each way and codec."""
    bps.init()
    x, y = _rows()
    results = {}
    for train in (_fit, _with_optimizer, _with_tape):
        for name, compression in _COMPRESSIONS.items():
            model = train(compression)
            loss = float(np.mean((model(x).numpy() - y) ** 2))
            weights = [float(np.sum(weight.astype(np.float64))) for weight in model.get_weights()]
            results[f"{train.__name__} {name}"] = [loss, weights]
    bps.shutdown()
    return results
