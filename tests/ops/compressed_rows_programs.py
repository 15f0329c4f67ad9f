"""What test_compressed_rows.py runs on each worker."""

import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.errors import error_of
from tests.ops.compression_programs import digest
from tf_byteps import _engine

COMPRESSIONS = ("int8", "fp8", "int4", "onebit", "int8:stochastic=1", "topk:start_step=9", "thc")
WIDTHS = {"wide": 100, "narrow": 5, "single": 1}
ROWS = 50


def rows(rank, width):
    """Indices, of which some come twice, and rows of one worker."""
    random = np.random.default_rng([rank, width])
    indices = random.integers(0, 60, ROWS)
    return indices, random.normal(size=(ROWS, width)).astype(np.float32)


def _mine(width):
    indices, values = rows(bps.rank(), width)
    return tf.IndexedSlices(tf.constant(values), tf.constant(indices), tf.constant([60, width]))


def _dense(slices):
    return tf.convert_to_tensor(slices).numpy()


def exchanges():
    """Sums as they are and compressed, and the bytes that each exchange pushed."""
    bps.init()
    results = {}
    for width_name, width in WIDTHS.items():
        for compression in ("none", *COMPRESSIONS):

            def exchange(slices, how, op="sum", compression=compression, width_name=width_name):
                name = f"{how} {compression} {width_name}"
                return bps.push_pull(slices, op=op, name=name, compression=compression)

            traced = tf.function(exchange, autograph=False)
            before = _engine.worker_counters()["pushed_bytes"]
            eager = _dense(exchange(_mine(width), "eager"))
            pushed = _engine.worker_counters()["pushed_bytes"] - before
            results[f"{width_name} {compression}"] = {
                "values": eager.tolist() if compression in ("none", "int8", "fp8") else [],
                "error": float(np.abs(eager - _exact(width)).max()),
                "digests": [digest(eager), digest(_dense(traced(_mine(width), "traced")))],
                "average": digest(2 * _dense(exchange(_mine(width), "mean", "average"))),
                "pushed": pushed,
            }
    bps.shutdown()
    return results


def _exact(width):
    total = np.zeros([60, width], np.float32)
    for rank in range(bps.size()):
        np.add.at(total, *rows(rank, width))
    return total


def dtypes_and_errors():
    """Rows of other dtypes, and what is refused."""
    bps.init()
    indices = tf.constant([1, 2])
    results = {
        "dtypes": [
            bps.push_pull(
                tf.IndexedSlices(tf.ones([2, 64], dtype), indices), compression="int8", name=dtype
            ).values.dtype.name
            for dtype in ("float16", "bfloat16", "float64")
        ],
        "integers": error_of(
            bps.push_pull,
            tf.IndexedSlices(tf.ones([2, 64], tf.int32), indices),
            op="sum",
            compression="int8",
        ),
    }
    own = ("int8", "fp8:block=32")[bps.rank()]
    results["disagreement"] = error_of(
        bps.push_pull,
        tf.IndexedSlices(tf.ones([2, 64]), indices),
        compression=own,
        name="embedding",
    )
    bps.shutdown()
    return results


def alone():
    """In a job of one worker rows are exact."""
    bps.init()
    reduced = bps.push_pull(_mine(5), op="sum", compression="int8", name="rows")
    result = digest(_dense(reduced)) == digest(_exact(5))
    bps.shutdown()
    return result
