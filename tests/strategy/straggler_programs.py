"""What the workers of test_stragglers.py run."""

import hashlib
import time

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.errors import error_of

SLOW = 2
STEPS = 50
PAUSE = 0.02


def fit_with_a_slow_worker():
    """`fit` with backup workers; one rank needs three times as long for each step."""
    strategy = bps.BytePSStrategy(backup_workers=1)
    with strategy.scope():
        model = _paused(keras.Sequential)([keras.Input([6]), keras.layers.Dense(8), _out()])
        model.compile("adam", "mse", metrics=["mae"])
    rows = np.random.default_rng(1).normal(size=(STEPS * 24, 6)).astype(np.float32)
    history = model.fit(rows, rows[:, :2], batch_size=24, epochs=1, verbose=0).history
    return {"digest": _digest(model), "history": history, "starts": model.starts}


def fit_without_a_strategy():
    """The same with `DistributedOptimizer`."""
    bps.init()
    keras.utils.set_random_seed(1)
    model = _paused(keras.Sequential)([keras.Input([6]), keras.layers.Dense(8), _out()])
    optimizer = bps.DistributedOptimizer(keras.optimizers.Adam(), backup_workers=1)
    model.compile(optimizer, "mse", jit_compile=False)
    rows = np.random.default_rng(bps.rank()).normal(size=(STEPS * 8, 6)).astype(np.float32)
    model.fit(rows, rows[:, :2], batch_size=8, epochs=1, verbose=0)
    return {"digest": _digest(model), "starts": model.starts}


def refusals():
    """What wrong uses raise."""
    bps.init()
    wrong = (
        lambda: bps.BytePSStrategy(backup_workers=bps.size()),
        lambda: bps.BytePSStrategy(backup_workers=-1),
        lambda: bps.BytePSStrategy(backup_workers=1, cross_step=True),
        lambda: bps.DistributedOptimizer(keras.optimizers.SGD(), op=bps.Sum, backup_workers=1),
    )
    return [error_of(make) for make in wrong]


def _out():
    return keras.layers.Dense(2)


def _digest(model):
    values = [*model.get_weights(), *(np.asarray(v) for v in model.optimizer.variables)]
    return hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest()


def _paused(base):
    class Paused(base):
        def train_step(self, data):
            x, y = data
            pause = tf.ensure_shape(tf.py_function(self._pause, [], tf.float32), [])
            return super().train_step((x + 0 * pause, y))

        def _pause(self):
            self.starts.append(time.monotonic())
            time.sleep(PAUSE * (3 if bps.rank() == SLOW else 1))
            return 0.0

        starts = []

    return Paused
