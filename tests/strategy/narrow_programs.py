"""A training in mixed precision, which test_narrow_gradients.py runs with and without narrow
contributions."""

import hashlib

import keras
import numpy as np

import tf_byteps as bps
from tf_byteps import _engine

_ROWS = 272  # of which the last batch has no 64


def _fit(policy, make_step):
    keras.utils.set_random_seed(1)
    keras.config.set_dtype_policy(policy)
    random = np.random.default_rng(1)
    x = random.normal(size=(_ROWS, 64)).astype(np.float32)
    y = random.normal(size=(_ROWS, 4)).astype(np.float32)
    before = _engine.worker_counters()["pushed_bytes"]
    model, mine, batch = make_step()
    model.fit(x[mine], y[mine], batch, epochs=2, verbose=0, shuffle=False)
    keras.config.set_dtype_policy("float32")
    weights = b"".join(weight.tobytes() for weight in model.get_weights())
    pushed = _engine.worker_counters()["pushed_bytes"] - before
    return [hashlib.sha256(weights).hexdigest(), pushed]


def _model():
    layers = [keras.layers.Dense(256, "relu"), keras.layers.Dense(4, dtype="float32")]
    return keras.Sequential([keras.Input([64]), *layers])


def _with_strategy(jit_compile):
    with bps.BytePSStrategy().scope():
        model = _model()
        model.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=jit_compile)
    return model, slice(None), 64


def _with_optimizer():
    model = _model()
    model.compile(bps.DistributedOptimizer(keras.optimizers.SGD(0.05)), "mse", jit_compile=False)
    return model, slice(bps.rank(), None, bps.size()), 32


def train():
    """The weights' digest and the bytes that this worker has pushed, of each way and policy."""
    bps.init()
    ways = {
        "strategy": lambda: _with_strategy(False),
        "compiled strategy": lambda: _with_strategy(True),
        "optimizer": _with_optimizer,
    }
    results = {
        f"{policy}, {way}": _fit(policy, make_step)
        for way, make_step in ways.items()
        for policy in ("mixed_bfloat16", "mixed_float16", "float32")
    }
    bps.shutdown()
    return results
