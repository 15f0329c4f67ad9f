"""What the workers of test_row_sums.py do."""

import functools
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tf_byteps import _engine
from tf_byteps.ops.sparse import row_sums

DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
_WIDTH = 3


def start():
    bps.init()
    return bps.rank(), bps.size()


def _cases():
    """This worker's indices, by what is special about them."""
    rank = bps.rank()
    return {
        "usual": [7, 3, 7, 100 + rank, 3 + rank],
        "empty on some": [5, 9] if rank % 2 else [],
        "nobody has any": [],
        "all the same": [1, 2, 300, 70_000],
        "disjoint": [10 * rank + 1, 10 * rank + 4],
        "duplicates": [4] * 5,
        "one row": [8],
        "large": [2**31 - 1, rank],
        "many": list(np.random.default_rng(rank).zipf(1.2, 2000) % 10_000),
    }


def _rows(indices, dtype="float32", index_dtype="int32"):
    values = np.random.default_rng(len(indices) + bps.rank()).normal(size=(len(indices), _WIDTH))
    values = tf.cast(tf.constant(100 * values), dtype)
    return tf.IndexedSlices(values, tf.constant(np.array(indices, index_dtype)))


def _gathered(*arguments, **keywords):
    with mock.patch.object(row_sums, "way", lambda: ""):
        return bps.push_pull(*arguments, **keywords)


def _is_equal(one, other):
    return (
        one.indices.dtype == other.indices.dtype
        and one.values.dtype == other.values.dtype
        and one.indices.numpy().tolist() == other.indices.numpy().tolist()
        and one.values.numpy().tobytes() == other.values.numpy().tobytes()
    )


def as_gathered(expected_way="servers"):
    """Whether sums on the servers are bit for bit what a gather gives; what is not."""
    assert row_sums.way() == expected_way
    wrong, compared = [], 0
    for case, indices in _cases().items():
        for dtype in DTYPES if case == "usual" else ("float32", "bfloat16"):
            for index_dtype in ("int32", "int64"):
                for op in ("sum", "average") if tf.as_dtype(dtype).is_floating else ("sum",):
                    name = f"{case}/{dtype}/{index_dtype}/{op}"
                    rows = _rows(indices, dtype, index_dtype)
                    before = rows.values.numpy().tobytes()
                    summed = bps.push_pull(rows, op=op, name=name)
                    gathered = _gathered(rows, op=op, name=f"gathered/{name}")
                    unchanged = rows.values.numpy().tobytes() == before
                    compared += 1
                    if not _is_equal(summed, gathered) or not unchanged:
                        wrong.append(name)
    return compared, wrong


def in_functions():
    """The same in a function that is traced once, with other rows each time."""
    signature = [tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, _WIDTH])]

    @tf.function(input_signature=signature)
    def step(indices, values):
        rows = [tf.IndexedSlices(values * scale, indices) for scale in (1.0, 2.0)]
        return bps.push_pull(rows, op="average", name="in a function")

    wrong = []
    for case, indices in _cases().items():
        rows = _rows(indices, index_dtype="int64")
        expected = _gathered(rows, op="average", name=f"in a function/{case}")
        once, twice = step(rows.indices, rows.values)
        twice = tf.IndexedSlices(twice.values / 2.0, twice.indices)
        if not (_is_equal(once, expected) and _is_equal(twice, expected)):
            wrong.append(case)
    return wrong


def tables():
    """Rows of several axes, and of one."""
    found = []
    for shape in ([2], [2, 3, 4]):
        rows = tf.IndexedSlices(tf.ones(shape), tf.constant([4, 1]), tf.constant([6, *shape[1:]]))
        result = bps.push_pull(rows, op="sum", name=f"tables/{len(shape)}")
        found.append((result.indices.numpy().tolist(), tf.convert_to_tensor(result).numpy()))
    return found


def cast():
    """Compressed to 16 bits both ways."""
    rows = tf.IndexedSlices(tf.fill([1, 2], 1 / 3), tf.constant([bps.rank() % 2]))
    return {
        form: bps.push_pull(rows, op="sum", compression=form, name=f"cast/{form}").values.numpy()
        for form in ("bf16", "fp16")
    }


def _error_of(function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def refused_by_one():
    """Rank 0 gives wrong indices, the others right ones; then all give right ones.

    Often, as it depends on the time: a name is free only when all of its blocks have ended.
    """
    errors = {}
    cases = {"negative": -3, "beyond the table": 9, **{f"again {n}": 9 for n in range(40)}}
    for case, index in cases.items():
        mine = index if bps.rank() == 0 else 1
        rows = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([mine]), tf.constant([9, 2]))
        errors[case] = _error_of(bps.push_pull, rows, op="sum", name=f"refused/{case}")
        bps.push_pull(tf.zeros([]), name="barrier")
        rows = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1]), tf.constant([9, 2]))
        result = bps.push_pull(rows, op="sum", name=f"refused/{case}")
        assert result.values.numpy().tolist() == [[bps.size()] * 2]
    return errors


def in_a_codec():
    """What becomes of rows in a codec, and which exchanges they take."""
    rows = tf.IndexedSlices(tf.ones([2, 64]), tf.constant([3, 3]))
    results, operations = [], []
    for codec in ("int8", "powersgd"):
        push_pull = functools.partial(bps.push_pull, rows, op="sum", compression=codec, name=codec)
        results.append(push_pull().values.numpy().tolist())
        operations.append(_operations_of(lambda push_pull=push_pull: push_pull().values))
    return results, operations


def disagreements():
    """Rank 0 gathers what the others add up; and its rows are longer."""
    rows = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]))
    exchange = _gathered if bps.rank() == 0 else bps.push_pull
    kinds = _error_of(exchange, rows, op="sum", name="kinds")
    width = 3 if bps.rank() == 0 else 2
    rows = tf.IndexedSlices(tf.ones([1, width]), tf.constant([0]))
    return kinds, _error_of(bps.push_pull, rows, op="sum", name="widths")


def gradients():
    """Of the sum of all workers' results, weighted by index and rank."""
    found = {}
    for op in ("sum", "average"):
        values = tf.constant([[1.0], [2.0]])
        with tf.GradientTape() as tape:
            tape.watch(values)
            rows = tf.IndexedSlices(values, tf.constant([bps.rank(), 9]))
            summed = bps.push_pull(rows, op=op, name=f"gradients/{op}")
            weights = tf.cast(summed.indices, tf.float32)[:, None] * (1.0 + bps.rank())
            loss = tf.reduce_sum(summed.values * weights)
        found[op] = tape.gradient(loss, values).numpy().tolist()
    return found


def fit():
    """The weights of a small recommender, trained with sums of rows and with gathers."""
    weights = []
    strategy = bps.BytePSStrategy()
    for chosen in (row_sums.way, lambda: ""):
        keras.utils.set_random_seed(3)
        with mock.patch.object(row_sums, "way", chosen):
            with strategy.scope():
                model = keras.Sequential(
                    [keras.layers.Embedding(500, 4), keras.layers.Flatten(), keras.layers.Dense(1)]
                )
                model.compile(keras.optimizers.Adagrad(0.1), "mse", jit_compile=False)
            ids = np.random.default_rng(0).zipf(1.3, (240, 5)) % 500
            model.fit(ids, ids[:, :1] / 500, batch_size=24, epochs=2, verbose=0, shuffle=False)
        weights.append([each.tobytes() for each in model.get_weights()])
    return weights[0] == weights[1]


def operations():
    """Which exchanges are in a traced function."""
    rows = _rows([1])
    return _operations_of(lambda: bps.push_pull(rows, op="sum", name="traced").values)


def _operations_of(function):
    graph = tf.function(function).get_concrete_function().graph
    return sorted(each.type for each in graph.get_operations() if each.type.startswith("BytePS"))


def bytes_of_a_worker():
    """What goes up and comes down, summed and gathered, divided by the formulas."""
    lookups, width = 3000, 64
    own = np.unique(np.random.default_rng(bps.rank()).zipf(1.2, lookups) % 20_000)
    of_all = [
        np.unique(np.random.default_rng(rank).zipf(1.2, lookups) % 20_000)
        for rank in range(bps.size())
    ]
    union = np.unique(np.concatenate(of_all))
    slices = tf.IndexedSlices(tf.ones([len(own), width]), tf.constant(own))
    return {
        "up": _counted("pushed_bytes", slices) / (len(own) * (4 * width + 4)),
        "down": _counted("received_bytes", slices) / (len(union) * (4 * width + 4)),
    }


def _counted(what, slices):
    before = _engine.worker_counters()[what]
    bps.push_pull(slices, op="sum", name="bytes")
    return _engine.worker_counters()[what] - before


def chosen_ways():
    """Tensors of which workers share most rows, half of them, or none: what is exchanged round for
    round, and whether each result is what a gather gives."""
    size, rank, counts = bps.size(), bps.rank(), []
    tables = {
        "shared": list(range(12)),
        "half": [*range(6), *(100 + 6 * rank + i for i in range(6))],
        "own": [100 * rank + i for i in range(12)],
    }
    is_equal = {}
    for name, indices in tables.items():
        for number in range(3):
            # Nobody has rows in the first round, which decides nothing.
            rows = _rows(indices if number else [], index_dtype="int64")
            found = bps.push_pull(rows, op="average", name=name)
            expected = _gathered(rows, op="average", name=f"gathered/{name}")
            is_equal[name] = is_equal.get(name, True) and _is_equal(found, expected)
        counters = _engine.worker_counters()
        counts.append((counters["row_sum_tensors"], counters["row_gather_tensors"]))
    return size, is_equal, counts


def choices_after_an_error():
    """One worker gives a wrong index where servers add up: then all begin anew."""
    results = []
    for number in range(6):
        mine = 9 if number == 3 and bps.rank() == 0 else 1
        rows = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([mine]), tf.constant([9, 2]))
        error = _error_of(bps.push_pull, rows, op="sum", name="erring")
        bps.push_pull(tf.zeros([]), name="barrier")
        results.append(error and error[1].partition("index 9 is not a row")[1])
    return results


def operations_by_default():
    assert row_sums.way() == "choice"
    rows = _rows([1])
    return _operations_of(lambda: bps.push_pull(rows, op="sum", name="traced").values)
