"""What test_compression_start.py runs on each worker."""

import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.codec import sums
from tests.errors import error_of
from tests.ops.compression_programs import digest
from tf_byteps import _engine

LENGTH = 20_000
ROUNDS = 5
# By the name that the test has of the codec; the first round in which it is used.
STARTS = {
    "int8": ("int8:start_step=2", 2),
    "topk": (bps.Compression.topk(start_step=1), 1),
    "onebit": (bps.Compression.onebit(start_step=3), 3),
}


def exchanges():
    """Digests of each round, eager and traced."""
    bps.init()
    results = {}
    for name, (compression, _) in STARTS.items():

        def exchange(x, name, compression=compression):
            return bps.push_pull(x, op="sum", name=name, compression=compression)

        for how, function in {
            "eager": exchange,
            "traced": tf.function(exchange, autograph=False),
            "compiled": tf.function(exchange, autograph=False, jit_compile=True),
        }.items():
            own = f"{how} {name}"
            results[own] = [
                digest(function(tf.constant(sums.gradient(bps.rank(), r, LENGTH)), own))
                for r in range(ROUNDS)
            ]
    results["refused"] = error_of(bps.push_pull, tf.ones([9]), compression="int8:start_step=-1")
    bps.shutdown()
    return results


def residuals():
    """Rounds of a tensor; in the middle the tensor goes on as another, with what was saved."""
    bps.init()

    def exchange(name, r):
        mine = tf.constant(sums.gradient(bps.rank(), r, LENGTH))
        return digest(bps.push_pull(mine, op="sum", name=name, compression="onebit"))

    whole = [exchange("whole", r) for r in range(4)]
    first = [exchange("first", r) for r in range(2)]
    codec, values = _engine.residuals()["first"]
    _engine.restore_residuals({"second": (codec, values), "third": (codec, values[:9])})
    pending = np.array_equal(_engine.residuals()["second"][1], values)
    second = [exchange("second", r) for r in range(2, 4)]
    third = exchange("third", 2)
    bps.shutdown()
    return [whole, [*first, *second], pending, third]
