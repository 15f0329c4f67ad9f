"""What test_low_rank.py runs on each worker."""

import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.errors import error_of
from tests.ops.compression_programs import SCALES, digest

SHAPE = (8, 5, 60)  # 40 rows
_ROUNDS = 30


def gradient(rank, kind):
    """Of one column and one row, or of any."""
    random = np.random.default_rng([7, rank])
    if kind == "any":
        return random.normal(size=SHAPE).astype(np.float32)
    column = np.random.default_rng(3).normal(size=(40, 1))
    return (column @ random.normal(size=(1, 60))).reshape(SHAPE).astype(np.float32)


def _mean(kind):
    return np.mean([gradient(rank, kind) for rank in range(bps.size())], axis=0)


def _error(result, exact):
    return float(np.linalg.norm(np.asarray(result) - exact) / np.linalg.norm(exact))


def _scaled_error(exchange, tensor, name, scale):
    """Of the second round, which begins with what the first has left."""
    rounds = [exchange(tensor * tf.constant(scale, tf.float32), name) for _ in range(2)]
    return _error(rounds[1].numpy().astype(np.float64) / scale, _mean("simple"))


def averages():
    """Errors and bits of each way."""
    bps.init()

    def exchange(x, name, op="average"):
        return bps.push_pull(x, op=op, name=name, compression="powersgd")

    traced = tf.function(exchange, autograph=False)
    compiled = tf.function(exchange, autograph=False, jit_compile=True)
    simple, complicated = (tf.constant(gradient(bps.rank(), kind)) for kind in ("simple", "any"))
    results = {}
    for how, function in {"eager": exchange, "traced": traced, "compiled": compiled}.items():
        rounds = [function(complicated, f"{how} any") for _ in range(_ROUNDS)]
        results[how] = {
            "simple": _error(function(simple, f"{how} simple"), _mean("simple")),
            "sum": _error(function(simple, f"{how} sum", "sum"), _mean("simple") * bps.size()),
            "first": _error(rounds[0], _mean("any")),
            "mean": _error(np.mean(rounds, axis=0), _mean("any")),
            "bits": digest(rounds[-1]),
            "scaled": [
                _scaled_error(function, simple, f"{how} {scale}", scale)
                for scale in SCALES
                if how != "traced"
            ],
        }
    broken = gradient(bps.rank(), "any")
    broken[3] = np.nan if bps.rank() == 1 else broken[3]
    during = []
    for name in ("broken", "unbroken"):
        exchange(complicated, name)
        if name == "broken":
            during = exchange(tf.constant(broken), name)
        results[name] = _error(exchange(complicated, name), _mean("any"))
    results |= {"shape": list(during.shape), "finite": bool(np.isfinite(during).any())}
    bps.shutdown()
    return results


def others():
    """What is sent as it is, and what is refused."""
    bps.init()
    vector, short = tf.fill([20_000], 1 / 3), tf.fill([4, 4], 1 / 3)
    rows = tf.IndexedSlices(tf.fill([2, 500], 1 / 3), tf.constant([1, 2]))
    compression = bps.Compression.powersgd(rank=1)
    results = {
        "as it is": [
            np.unique(bps.push_pull(each, op="sum", name=str(i), compression=compression)).tolist()
            for i, each in enumerate((vector, short))
        ],
        "rows": np.unique(
            bps.push_pull(rows, op="sum", name="rows", compression=compression).values
        ).tolist(),
        "equal": compression == bps.Compression.powersgd(1),
        "refused": [
            error_of(bps.Compression.powersgd, rank=0),
            error_of(bps.push_pull, short, compression="powersgd:rank=x"),
            error_of(bps.push_pull, short, compression="powersgd:columns=2"),
            error_of(bps.push_pull, short, op="max", compression="powersgd"),
            error_of(bps.BytePSStrategy, compression="powersgd", cross_step=True),
            error_of(bps.BytePSStrategy, compression="thc", cross_step=True),
            error_of(with_backup_workers),
        ],
    }
    bps.shutdown()
    return results


def with_backup_workers():
    """An average that need not wait for all."""
    x = tf.Variable(tf.ones(SHAPE))
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(tf.square(x))
    tape = bps.DistributedGradientTape(tape, compression="powersgd", backup_workers=1)
    tape.gradient(y, x)
