"""What test_backup_workers.py runs on each worker: `fit` on JAX with a worker that is slow."""

import hashlib
import time

import keras
import numpy as np

import tf_byteps as bps
from tests.cluster import wait_until
from tests.errors import error_of

SLOW = 2
STEPS = 30
PAUSE = 0.03


class _Slow(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        time.sleep(PAUSE if bps.rank() == SLOW else 0)


def _model(optimizer):
    keras.utils.set_random_seed(1)
    layers = [keras.Input([6]), keras.layers.Dense(8), keras.layers.Dense(2)]
    model = keras.Sequential(layers)
    model.compile(optimizer, "mse")
    return model


def _result(model, rows, batch_size):
    history = model.fit(
        rows, rows[:, :2], batch_size, epochs=3, shuffle=False, verbose=0, callbacks=[_Slow()]
    ).history
    values = [*model.get_weights(), *(np.asarray(each.value) for each in model.optimizer.variables)]
    digest = hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest()
    bps.broadcast_object(None, name="all have trained")
    # Servers report with their heartbeats.
    wait_until(lambda: any(each["dropped"] for each in bps.arrival_lags()), 300)
    dropped = {each["rank"]: each["dropped"] for each in bps.arrival_lags()}
    return {"digest": digest, "losses": history["loss"], "dropped": dropped}


def with_a_strategy():
    with bps.BytePSStrategy(backup_workers=1).scope():
        model = _model("adam")
    rows = np.random.default_rng(1).normal(size=(STEPS * 24, 6)).astype("float32")
    return _result(model, rows, 24)


def without_a_strategy():
    bps.init()
    model = _model(bps.DistributedOptimizer(keras.optimizers.Adam(), backup_workers=1))
    rows = np.random.default_rng(bps.rank()).normal(size=(STEPS * 8, 6)).astype("float32")
    return _result(model, rows, 8)


def refusals():
    """What wrong uses raise."""
    bps.init()
    wrong = (
        lambda: bps.BytePSStrategy(backup_workers=bps.size()),
        lambda: bps.BytePSStrategy(backup_workers=-1),
        lambda: bps.DistributedOptimizer(keras.optimizers.SGD(), op="sum", backup_workers=1),
    )
    return [error_of(make) for make in wrong]
