"""Trainings with error feedback that are cut short and go on, for test_residuals.py."""

import hashlib
import os

import keras
import numpy as np

import tf_byteps as bps

EPOCHS = 4
_CUT_AFTER = 2  # epochs

# By name: what the gradients travel as, whether residuals are saved, and in which way it trains.
CASES = {
    "onebit": ("onebit", True, "strategy"),
    "topk": ("topk:ratio=0.1", True, "strategy"),
    "powersgd": ("powersgd:rank=2", True, "strategy"),
    "cross_step": ("onebit", True, "cross_step"),
    "optimizer": ("onebit", True, "optimizer"),
    "torn": ("onebit", True, "strategy"),
    "forgotten": ("onebit", False, "strategy"),
}


class _CutError(Exception):
    """Ends a training as a crash would, on all workers."""


class _Cut(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch + 1 == _CUT_AFTER:
            raise _CutError


def _rows():
    random = np.random.default_rng(1)
    x = random.normal(size=(96, 16)).astype(np.float32)
    return x, np.sin(x @ random.normal(size=(16, 4))).astype(np.float32)


def _model(name, compression, way):
    """Names of tensors follow from those of the layers: each case has its own."""
    keras.utils.set_random_seed(1)

    def build():
        return keras.Sequential(
            [
                keras.Input([16]),
                keras.layers.Dense(32, activation="tanh", name=f"{name}_first"),
                keras.layers.Dense(4, name=f"{name}_second"),
            ]
        )

    adam = keras.optimizers.Adam(0.01)
    if way == "optimizer":
        model = build()
        model.compile(bps.DistributedOptimizer(adam, compression=compression), "mse")
        return model
    cross_step = way == "cross_step"
    with bps.BytePSStrategy(compression=compression, cross_step=cross_step).scope():
        model = build()
        model.compile(adam, "mse")
    return model


def _callbacks(folder, name, saves, way, is_cut):
    weights = os.path.join(folder, name, "weights")
    if way == "optimizer":  # there each worker writes
        weights = os.path.join(weights, str(bps.rank()))
    backup = keras.callbacks.BackupAndRestore(weights)
    residuals = bps.keras.callbacks.BackupResiduals(os.path.join(folder, name, "residuals"))
    before = [residuals] if saves else []
    if not is_cut:
        return [*before, backup]
    return [*before, _Cut(), backup] if name == "torn" else [*before, backup, _Cut()]


def train(folder, names, is_cut):
    """Digests of the weights, by case; None where the training was cut short."""
    bps.init()
    results = {}
    for name in names:
        compression, saves, way = CASES[name]
        model = _model(name, compression, way)
        x, y = _rows()
        batch = 24
        if way == "optimizer":
            x, y, batch = x[bps.rank() :: bps.size()], y[bps.rank() :: bps.size()], 12
        callbacks = _callbacks(folder, name, saves, way, is_cut)
        options = {"epochs": EPOCHS, "verbose": 0, "shuffle": False, "callbacks": callbacks}
        try:
            model.fit(x, y, batch, **options)
        except _CutError:
            results[name] = None
        else:
            weights = b"".join(weight.tobytes() for weight in model.get_weights())
            results[name] = hashlib.sha256(weights).hexdigest()
    bps.shutdown()
    return results
