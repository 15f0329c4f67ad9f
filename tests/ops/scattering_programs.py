"""What the workers of test_scattering.py do."""

import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tf_byteps import _engine
from tf_byteps.exchange import host

DTYPES = (
    *("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64"),
    *("bool", "int16", "uint16", "uint32", "uint64", "complex64", "complex128"),
)


def start():
    bps.init()
    return bps.rank(), bps.size()


def split_of(sender, receiver):
    """How many rows one worker has for another: uneven, and none for some."""
    return (2 * sender + 3 * receiver) % 4


def own_rows(dtype="float32"):
    """This worker's rows, each with sender, receiver and number, and its splits."""
    splits = [split_of(bps.rank(), receiver) for receiver in range(bps.size())]
    rows = [
        [bps.rank(), receiver, number]
        for receiver in range(bps.size())
        for number in range(splits[receiver])
    ]
    return tf.cast(tf.reshape(tf.constant(rows, tf.int32), [-1, 3]), dtype), splits


def every_dtype():
    found = {}
    for dtype in DTYPES:
        rows, splits = own_rows(dtype)
        result, received = bps.alltoall(rows, splits, name=f"rows/{dtype}")
        assert result.dtype == rows.dtype and received.dtype == tf.int32
        numbers = tf.math.real(result) if result.dtype.is_complex else result
        found[dtype] = tf.cast(numbers, tf.int32).numpy().tolist(), received.numpy().tolist()
    return found


def traced():
    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([None], tf.int64)])
    def exchange(rows, splits):
        results = [bps.alltoall(rows, splits, name=f"traced/{index}") for index in range(3)]
        return results[0], [tf.reduce_all(each[0] == results[0][0]) for each in results]

    rows, splits = own_rows()
    (result, received), are_equal = exchange(rows, tf.constant(splits, tf.int64))
    assert received.dtype == tf.int64 and all(are_equal)
    return result.numpy().tolist(), received.numpy().tolist()


def even():
    mine = tf.range(2 * bps.size()) + 100 * bps.rank()
    traced_too = tf.function(lambda rows: bps.alltoall(rows, name="even in a function"))
    found = [bps.alltoall(mine).numpy().tolist(), traced_too(mine).numpy().tolist()]
    empty = bps.alltoall(tf.zeros([0, 4]), name="nothing")
    return found, empty.shape.as_list()


def gradients():
    """Of a loss in which each row that arrives has the receiver's own factor."""
    rows, splits = own_rows()
    with tf.GradientTape() as tape:
        tape.watch(rows)
        received, _ = bps.alltoall(rows, splits, name="forward")
        loss = tf.reduce_sum(received * (bps.rank() + 1.0))
    eager = tape.gradient(loss, rows)

    @tf.function
    def in_graph(rows):
        with tf.GradientTape() as tape:
            tape.watch(rows)
            received, _ = bps.alltoall(rows * 2.0, splits, name="forward in a graph")
            loss = tf.reduce_sum(received * (bps.rank() + 1.0))
        return tape.gradient(loss, rows)

    return [tf.convert_to_tensor(each).numpy().tolist() for each in (eager, in_graph(rows))]


def _error_of(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def refusals():
    rows = tf.zeros([4, 2])
    right = [4] + [0] * (bps.size() - 1)
    compiled = tf.function(lambda: bps.alltoall(rows, right, name="compiled"), jit_compile=True)
    return {
        "dtype": _error_of(bps.alltoall, tf.constant(["a"])),
        "scalar": _error_of(bps.alltoall, 1.0),
        "floating splits": _error_of(bps.alltoall, rows, [4.0]),
        "matrix of splits": _error_of(bps.alltoall, rows, [[4]]),
        "negative": _error_of(bps.alltoall, rows, [-4] + [8] * (bps.size() - 1)),
        "length": _error_of(bps.alltoall, rows, [1, 1, 1, 1]),
        "sum": _error_of(bps.alltoall, rows, [3] + [0] * (bps.size() - 1)),
        "no splits": _error_of(bps.alltoall, rows, []),
        "uneven": _error_of(bps.alltoall, tf.zeros([bps.size() + 1])),
        "compiled": _error_of(compiled),
    }


def refused_by_one():
    """Rank 0 gives wrong splits, the others right ones; then all give right ones."""
    right = [4] + [0] * (bps.size() - 1)
    wrong = [5] + [0] * (bps.size() - 1)
    error = _error_of(
        bps.alltoall, tf.zeros([4]), right if bps.rank() else wrong, name="refused by one"
    )
    # The next round would end this one, too, but without the reason.
    bps.push_pull(tf.zeros([]), name="barrier")
    result, _ = bps.alltoall(tf.ones([4]), right, name="refused by one")
    return error, result.shape[0]


def disagreements():
    last = bps.rank() == bps.size() - 1
    splits = [1] * bps.size()
    by_dtype = tf.zeros([bps.size()], tf.float64 if last else tf.float32)
    by_shape = tf.zeros([bps.size(), 3 if last else 2])
    errors = [
        _error_of(bps.alltoall, by_dtype, splits, name="dtypes"),
        _error_of(bps.alltoall, by_shape, splits, name="shapes"),
        _error_of(bps.gather, by_shape, name="kinds")
        if last
        else _error_of(bps.alltoall, by_shape, splits, name="kinds"),
    ]
    return errors, bps.alltoall(tf.zeros([bps.size()]), name="shapes").shape[0]


def of_numpy():
    rows, splits = own_rows()
    received, counts = host.alltoall(rows.numpy(), splits, "of numpy")
    return received.tolist(), counts


def reduced_rows():
    """Of tensors with several numbers of rows: those that this worker gets, in several ways."""
    found = {}
    for rows in (0, 1, 5, 2 * bps.size()):
        mine = tf.reshape(tf.range(2.0 * rows), [rows, 2]) * (bps.rank() + 1.0)
        summed = bps.reducescatter(mine, op=bps.Sum, name=f"sum of {rows}")
        averaged = tf.function(bps.reducescatter)(mine, name=f"average of {rows}")
        of_integers = bps.keras.reducescatter(tf.cast(mine, tf.int32), f"numpy {rows}", "sum")
        assert of_integers.dtype == np.int32
        found[rows] = [np.asarray(each).tolist() for each in (summed, averaged, of_integers)]
    pair = bps.grouped_reducescatter([mine, mine + 1.0], op="sum", name="pair")
    return found, [each.numpy().tolist() for each in pair]


def gradients_of_reduced_rows():
    found = {}
    for op in (bps.Sum, bps.Average):
        mine = tf.ones([5])
        with tf.GradientTape() as tape:
            tape.watch(mine)
            own = bps.reducescatter(mine, op=op, name=f"gradient of {op}")
            loss = tf.reduce_sum(own * (bps.rank() + 1.0))
        found[str(op)] = tf.convert_to_tensor(tape.gradient(loss, mine)).numpy().tolist()
    return found


def refused_reductions():
    compiled = tf.function(lambda: bps.reducescatter(tf.ones([4]), name="c"), jit_compile=True)
    return {
        "scalar": _error_of(bps.reducescatter, 1.0),
        "scalar of several": _error_of(bps.grouped_reducescatter, [tf.ones([2]), 1.0]),
        "slices": _error_of(bps.reducescatter, tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]))),
        "dtype": _error_of(bps.reducescatter, tf.constant([True])),
        "average": _error_of(bps.reducescatter, tf.constant([1])),
        "process set": _error_of(bps.reducescatter, tf.ones([2]), process_set=1),
        "compiled": _error_of(compiled),
    }


def bytes_of_a_worker():
    """What goes from a worker and to it for as many rows as in any other number of workers."""
    rows = np.zeros([120_000, 4], np.float32)
    before = _engine.worker_counters()
    for _ in range(3):
        bps.alltoall(rows, name="bytes")
    after = _engine.worker_counters()
    return {
        what: (after[what] - before[what]) / (3 * rows.nbytes)
        for what in ("pushed_bytes", "received_bytes")
    }
