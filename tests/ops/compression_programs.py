"""What test_compression.py runs on each worker."""

import hashlib
from unittest import mock

import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.codec import sums
from tests.errors import error_of

LENGTH = 50_001
ROUNDS = 3
NOT_FINITE = {2: np.nan, 4: np.inf}  # what one element is, by round


def digest(tensor):
    """Bits, as text."""
    return hashlib.sha256(np.asarray(tensor).tobytes()).hexdigest()


def exchanges():
    """Every codec, eager, traced and compiled."""
    bps.init()
    results = {}
    for compression in sums.CODECS:

        def exchange(x, name, op="sum", compression=compression):
            return bps.push_pull(x, op=op, name=name, compression=compression)

        traced = tf.function(exchange, autograph=False)
        compiled = tf.function(exchange, autograph=False, jit_compile=True)
        for how, function in {"eager": exchange, "traced": traced, "compiled": compiled}.items():
            name = f"{how} {compression}"
            results[name] = [
                digest(function(tf.constant(sums.gradient(bps.rank(), r, LENGTH)), name))
                for r in range(ROUNDS)
            ]
        name = f"average {compression}"
        mine = tf.constant(sums.gradient(bps.rank(), 0, LENGTH))
        results[name] = [digest(exchange(mine, name, "average"))]
    bps.shutdown()
    return results


def called_with_options():
    """Options by a call on worker 1 and in the name on worker 0, and those that are refused."""
    bps.init()
    codecs = bps.Compression
    made = {
        "int8": codecs.int8(block=32, stochastic=False),
        "fp8": codecs.fp8(),
        "int4:feedback=1": codecs.int4(feedback=True),
        "onebit:feedback=0": codecs.onebit(feedback=False),
        "topk:feedback=0,ratio=0.3": codecs.topk(0.3, feedback=False),
        "randomk": codecs.randomk(),
        "dithering:bits=3,l2=1,natural=1": codecs.dithering(3, partition="natural", norm="l2"),
    }
    mine = tf.constant(sums.gradient(bps.rank(), 0, LENGTH))
    results = {
        "digests": {
            name: digest(
                bps.push_pull(
                    mine, op="sum", name=name, compression=compression if bps.rank() else name
                )
            )
            for name, compression in made.items()
        },
        "refused": [
            error_of(codecs.int8, block=33),
            error_of(codecs.fp8, block=64.0),
            error_of(codecs.int4, feedback=2),
            error_of(codecs.topk, ratio=0),
            error_of(codecs.randomk, ratio=1.5),
            error_of(codecs.dithering, bits=9),
            error_of(codecs.dithering, partition="log"),
            error_of(codecs.onebit, block=32),
        ],
        "equal": [
            codecs.int4(feedback=True) == codecs.int4(32, True),
            len({codecs.int8(64), codecs.int8(64), codecs.int8(128)}) == 2,
            codecs.int8() != codecs.fp8(),
        ],
        "shown": repr(codecs.int8(64)),
    }
    bps.shutdown()
    return results


# Of gradients whose squares float32 cannot hold. The smallest are near the smallest normal number.
SCALES = (1e25, 1e-20, 1e-36)
BELOW_NORMAL = 1e-38  # some of the gradients are


def with_backup_workers():
    """An average that need not wait for all, as whole numbers."""
    x = tf.Variable(tf.ones([LENGTH]))
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(tf.square(x))
    tape = bps.DistributedGradientTape(tape, compression="thc", backup_workers=1)
    tape.gradient(y, x)


def _relative_error(result, exact):
    return float(np.square(result - exact).sum() / np.square(exact).sum())


def whole_numbers():
    """thc: bits and errors of each way, something that is not finite, a short tensor, and what is
    refused."""
    bps.init()

    def exchange(x, name, op="sum"):
        return bps.push_pull(x, op=op, name=name, compression="thc")

    traced = tf.function(exchange, autograph=False)
    compiled = tf.function(exchange, autograph=False, jit_compile=True)
    mine = sums.gradient(bps.rank(), 0, LENGTH)
    exact = sum(sums.gradient(rank, 0, LENGTH).astype(np.float64) for rank in range(bps.size()))
    results = {}
    for how, function in {"eager": exchange, "traced": traced, "compiled": compiled}.items():
        for op, divisor in {"sum": 1, "average": bps.size()}.items():
            result = function(tf.constant(mine), f"{how} {op}", op).numpy()
            results[f"{how} {op}"] = [digest(result), _relative_error(result, exact / divisor)]
        for scale in (*SCALES, BELOW_NORMAL):
            scaled = function(tf.constant(mine * np.float32(scale)), f"{how} sum", "sum").numpy()
            results[f"{how} {scale}"] = _relative_error(scaled.astype(np.float64) / scale, exact)
    broken = mine.copy()
    broken[5000] = np.inf if bps.rank() == 1 else 1
    after = exchange(tf.constant(broken), "broken").numpy()
    with tf.GradientTape() as tape:
        x = tf.Variable(mine)
        y = exchange(tf.cast(x, tf.float64), "differentiated", "average")
    results |= {
        "zero": int(np.count_nonzero(exchange(tf.zeros([LENGTH]), "zero"))),
        "finite": [
            bool(np.isfinite(after[:4096]).all()),
            bool(np.isfinite(after[4096:8192]).any()),
        ],
        "gradient": np.unique(tape.gradient(y, x).numpy().round(5)).tolist(),
        "dtype": y.dtype.name,
        "short": float(exchange(tf.fill([9], 1 / 3), "short")[0]),
        "backup": error_of(with_backup_workers),
    }
    bps.shutdown()
    return results


def on_hosts_of_unequal_size():
    """As if each worker had a GPU of its own, thc: its host's workers, and what it gets."""
    bps.init()
    devices = tf.config.list_logical_devices("CPU")
    with mock.patch.object(tf.config, "list_logical_devices", return_value=devices):
        total = bps.push_pull(tf.ones([LENGTH]), op="sum", name="unequal", compression="thc")
    return bps.local_size(), float(tf.reduce_mean(total)), digest(total)


def perhaps_not_finite(rank, round_number):
    """A gradient, with something else in a part of worker 1's in some rounds."""
    values = sums.gradient(rank, round_number, LENGTH)
    if rank == 1 and round_number in NOT_FINITE:
        values[LENGTH // 2] = NOT_FINITE[round_number]
    return values


def not_finite_in_between():
    """Rounds of each codec with error feedback."""
    bps.init()
    results = {
        compression: [
            digest(
                bps.push_pull(
                    tf.constant(perhaps_not_finite(bps.rank(), round_number)),
                    op="sum",
                    name=compression,
                    compression=compression,
                )
            )
            for round_number in range(6)
        ]
        for compression in ("onebit", "int4:feedback=1", "topk", "randomk")
    }
    bps.shutdown()
    return results


def others():
    """Dtypes, rows, short tensors, and what is refused."""
    bps.init()
    ones = tf.ones([20_000])
    rows = tf.IndexedSlices(tf.fill([2, 20_000], 1 / 3), tf.constant([bps.rank(), 5]))
    reduced = bps.push_pull(rows, op="sum", compression="int4", name="rows")
    results = {
        "dtypes": [
            [result.dtype.name, float(tf.reduce_max(tf.abs(tf.cast(result, tf.float32) - 2)))]
            for result in (
                bps.push_pull(tf.cast(ones, dtype), op="sum", compression="int8", name=dtype)
                for dtype in ("float16", "bfloat16", "float64")
            )
        ],
        "rows": np.unique(reduced.values.numpy()).tolist(),
        "short": float(bps.push_pull(ones[:9] / 3, compression="int4", name="short")[0]),
        "list": [
            float(each[0])
            for each in bps.push_pull(
                [ones * 2, ones * 4], op="sum", compression=bps.Compression.fp8, name="list"
            )
        ],
        "integers": error_of(bps.push_pull, tf.constant([3]), op="sum", compression="topk"),
        "maximum": error_of(bps.push_pull, ones, op="max", compression="onebit"),
        "options": {
            option: error_of(bps.push_pull, ones, compression=option)
            for option in (
                "onebit:block=32",
                "int4:feedback=2",
                "topk:ratio=2",
                "bf16:feedback=1",
                "int9:block=32",
            )
        },
        "unknown": error_of(bps.BytePSStrategy, compression="int9"),
        "not finite": bool(
            tf.math.is_finite(
                bps.push_pull(
                    tf.where(tf.range(20_000) == 7, np.inf, ones), compression="int8", name="inf"
                )[7]
            )
        ),
    }
    own = ("int8", "onebit", "none")[bps.rank() % 3]
    results["disagreement"] = error_of(
        bps.push_pull, ones, op="sum", compression=own, name="dense/kernel"
    )
    bps.shutdown()
    return results


def without_the_last():
    """An average that one worker need not be in: all have the same bits."""
    bps.init()
    optimizer = bps.keras.DistributedOptimizer(
        tf.keras.optimizers.SGD(1.0), compression="int8", backup_workers=1
    )
    variable = tf.keras.Variable(np.zeros(LENGTH, np.float32), name="v")
    optimizer.build([variable])
    for step in range(5):
        optimizer.apply([tf.constant(sums.gradient(bps.rank(), step, LENGTH))], [variable])
    result = digest(variable.numpy())
    bps.shutdown()
    return result
