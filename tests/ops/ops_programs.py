"""What the workers of test_ops.py do."""

import threading
import time

import keras
import numpy as np
import psutil
import tensorflow as tf

import tf_byteps as bps
from tests.cluster import wait_until
from tf_byteps import _engine
from tf_byteps.ops import library

DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
# Dtypes that are only copied -> values, more than there are workers.
COPIED = {
    "bool": [True, False, True, True],
    "string": [b"", b"text", b"\xff\0", b"more text"],
    "int16": [-(2**15), 0, 1, 2**15 - 1],
    "uint16": [0, 1, 2, 2**16 - 1],
    "uint32": [0, 1, 2, 2**32 - 1],
    "uint64": [0, 1, 2, 2**64 - 1],
    "complex64": [1 + 2j, 0, -1j, 3],
    "complex128": [1 + 2j, 0, -1j, 3],
}


STEPS = 10
EXACT = (0.3, 0.4, 0.6)  # of which a whole number of steps' sum is whole, too


class Rounding(bps.ops.Compressor):
    """Sends whole numbers, and what rounding lost with the next ones: it has a state."""

    def __init__(self, like):
        self.lost = tf.Variable(tf.zeros_like(like))
        self.calls = tf.Variable(0)

    def compress(self, tensor):
        wanted = tensor + self.lost
        sent = tf.round(wanted)
        self.lost.assign(wanted - sent)
        self.calls.assign_add(1)
        return sent, None

    def decompress(self, tensor, context):
        return tensor


def stateful_compressors():
    """How often `compress` is called in ten steps, and the steps' sum, by how they are called."""
    results = {}
    for how in ("eager", "traced", "compiled"):
        compression = Rounding(tf.constant(EXACT))

        def step(how=how, compression=compression):
            name = f"stateful {how}"
            return bps.push_pull(tf.constant(EXACT), name=name, compression=compression)

        if how != "eager":
            step = tf.function(step, autograph=False, jit_compile=how == "compiled")
        total = sum(step().numpy() for _ in range(STEPS))
        results[how] = int(compression.calls), total.tolist()
    return results


def before_init():
    outcomes = []
    for call in (lambda: bps.push_pull(tf.ones(2)), tf.function(lambda: bps.push_pull(tf.ones(2)))):
        try:
            call()
        except tf.errors.FailedPreconditionError as error:
            outcomes.append(error.message)
    return outcomes


def start():
    bps.init()
    return bps.rank(), bps.size()


def many_names():
    """Bytes by which a worker grows for each new name of an exchange."""
    process, count = psutil.Process(), 500
    library.token("the first of many")
    before = process.memory_info().rss
    for number in range(count):
        library.token(f"one of many/{number}")
    return (process.memory_info().rss - before) / count


def small_integers(dtype, shape=(5, 3)):
    """Small integers that differ on each worker: exact in every dtype, also summed."""
    numbers = np.arange(np.prod(shape)).reshape(shape) % 7 + 10 * bps.rank()
    return tf.cast(tf.constant(numbers), dtype)


def all_dtypes():
    """dtype -> op -> (eager, graph) results as float64."""
    results = {}
    for dtype in DTYPES:
        calls = {
            "sum": lambda x: bps.push_pull(x, op=bps.Sum),
            "min": lambda x: bps.push_pull(x, op="min"),
            "max": lambda x: bps.push_pull(x, op=bps.Max),
            "product": lambda x: bps.push_pull(x % 3 + 1, op=bps.Product),
            "broadcast": lambda x: bps.broadcast(x, root_rank=bps.size() - 1),
            "gather": lambda x: bps.gather(x[: bps.rank() + 1]),
        }
        if tf.as_dtype(dtype).is_floating:
            calls["average"] = lambda x: bps.push_pull(x)
        results[dtype] = {}
        for op, call in calls.items():
            eager, graph = call(small_integers(dtype)), tf.function(call)(small_integers(dtype))
            assert eager.dtype == graph.dtype == tf.as_dtype(dtype)
            results[dtype][op] = [tf.cast(x, tf.float64).numpy() for x in (eager, graph)]
    return results


def _plain(tensor):
    value = tensor.numpy()
    return value if isinstance(value, bytes) else value.tolist()


def copied_dtypes():
    """dtype -> values, and eager and graph results of what only copies, for dtypes without sums."""
    results = {}
    for dtype, values in COPIED.items():
        own = tf.constant(values, dtype)[bps.rank() :]

        def both(x):
            return bps.gather(x), bps.broadcast(x[-1:], 0), bps.broadcast(x[0], bps.size() - 1)

        found = [both(own), tf.function(both)(own)]
        assert all(each.dtype == tf.as_dtype(dtype) for triple in found for each in triple)
        found = [[_plain(each) for each in triple] for triple in found]
        results[dtype] = tf.constant(values, dtype).numpy().tolist(), found
    table = tf.constant([[b"a", b""], [b"\xff\0", b"long"]])[: bps.rank() + 1]
    results["table"] = bps.gather(table).numpy().tolist()
    results["nothing"] = bps.gather(tf.constant([], tf.string)).numpy().tolist()
    with tf.GradientTape() as tape:
        x = tf.constant([1 + 2j])
        tape.watch(x)
        loss = tf.reduce_sum(tf.math.real(bps.gather(x) * tf.constant(1 - 1j, tf.complex128)))
    results["gradient"] = tape.gradient(loss, x) is not None
    return results


def shapes():
    """Scalars, tensors without elements, and static shapes."""
    found = {}

    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([2, 3])])
    def trace(unknown, known):
        found["push_pull"] = [bps.push_pull(x).shape.as_list() for x in (unknown, known)]
        found["broadcast"] = [bps.broadcast(x, 0).shape.as_list() for x in (unknown, known)]
        found["gather"] = [bps.gather(x).shape.as_list() for x in (unknown, known)]
        return known

    trace.get_concrete_function()
    scalar = bps.push_pull(tf.constant(1.0), op="sum")
    nothing = bps.push_pull(tf.zeros([0, 4]), op="sum")
    no_rows = bps.gather(tf.zeros([0, 4]))
    return found, scalar.numpy(), nothing.shape.as_list(), no_rows.shape.as_list()


def gradients():
    results = {}
    x = tf.Variable(tf.fill([2, 2], float(bps.rank() + 1)))
    weight = tf.constant(float(bps.rank() + 1))

    def own_rows():
        return x[: bps.rank() % 2 + 1]

    def weighted(rows):  # row r of the result counts r + 1 times
        last = 1.0 + sum(r % 2 + 1 for r in range(bps.size()))
        return weight * tf.reduce_sum(rows * tf.range(1.0, last)[:, None])

    def gathered(name, **options):
        return weighted(bps.allgather(own_rows(), name=name, **options))

    calls = {
        "sum": lambda: weight * tf.reduce_sum(bps.push_pull(x, op="sum", name="g.sum")),
        "average": lambda: weight * tf.reduce_sum(bps.push_pull(x, name="g.average")),
        "broadcast": lambda: weight * tf.reduce_sum(bps.broadcast(x, 0, name="g.broadcast")),
        "broadcast_sum": lambda: (
            weight * tf.reduce_sum(bps.broadcast(x, 0, name="g.broadcast_sum", gradient="sum"))
        ),
        "gather": lambda: gathered("g.gather"),
        "gather_sum": lambda: gathered("g.gather_sum", gradient="sum"),
        "grouped_gather": lambda: weighted(
            bps.grouped_allgather([own_rows()], name="g.grouped")[0]
        ),
    }
    for name, call in calls.items():
        for mode, function in (("eager", call), ("graph", tf.function(call))):
            with tf.GradientTape() as tape:
                loss = function()
            results[name, mode] = tf.convert_to_tensor(tape.gradient(loss, x)).numpy()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(bps.push_pull(x, op="max", name="g.max"))
    try:
        tape.gradient(loss, x)
    except NotImplementedError as error:
        results["max"] = str(error)
    return results


def unused_result_runs():
    """Worker 0 uses the sum, the others ignore it: if theirs were pruned, worker 0 would wait."""

    @tf.function
    def function(x):
        total = bps.push_pull(x, op="sum", name="unused")
        return total if bps.rank() == 0 else x

    return [float(function(tf.constant(1.0))) for _ in range(3)]


def many_in_flight():
    """200 tensors, traced in another order on each worker."""
    order = np.random.default_rng(bps.rank()).permutation(200)

    @tf.function
    def function(x):
        return {int(i): bps.push_pull(x + float(i), op="sum", name=f"many/{i}") for i in order}

    results = [function(tf.fill([100], float(bps.rank()))) for _ in range(3)]
    return [{i: value.numpy()[0] for i, value in result.items()} for result in results]


def overlap():
    """Worker 0 has 8 independent exchanges; the others need number i + 1's sum for number i.

    Were worker 0's chained in program order, 0 first, then all would wait for ever.
    """

    @tf.function
    def function(x):
        if bps.rank() == 0:
            return [bps.push_pull(x, op="sum", name=f"overlap/{i}") for i in range(8)]
        sums, value = [], x
        for i in reversed(range(8)):
            sums.append(bps.push_pull(value, op="sum", name=f"overlap/{i}"))
            value = x + 0.0 * sums[-1]
        return sums

    return [float(value) for value in function(tf.constant(2.0))]


def eager_lists():
    """Lists in eager code: the other workers need a later member's sum for an earlier one.

    Were worker 0's members exchanged one after the other, all would wait for ever.
    """
    values = [tf.fill([2 + index], 1.0 + index) for index in range(4)]
    results = {}
    for repetition in range(2):
        name = f"list/{repetition}"
        if bps.rank() == 0:
            results[name] = bps.push_pull(values, op="sum", name=name)
        else:
            backwards = [
                bps.push_pull(values[index], op="sum", name=f"{name}/{index}")
                for index in reversed(range(4))
            ]
            results[name] = backwards[::-1]
    if bps.rank() == 0:
        results["gathered"] = bps.grouped_allgather(values[:2], name="rows")
    else:
        backwards = [bps.gather(values[index], name=f"rows/{index}") for index in (1, 0)]
        results["gathered"] = backwards[::-1]
    return tf.nest.map_structure(lambda tensor: tensor.numpy().tolist(), results)


def eager_tape():
    """The workers ask for the same gradients in opposite orders; rows of the table differ."""
    keras.utils.set_random_seed(0)
    sources = {
        name: keras.Variable(tf.ones(shape), name=name)
        for name, shape in (("a", [3]), ("b", [2, 2]), ("table", [5, 2]))
    }
    order = list(sources) if bps.rank() == 0 else list(sources)[::-1]
    results = []
    tf.config.run_functions_eagerly(True)  # as in Keras's run_eagerly
    for step in range(3):
        with bps.DistributedGradientTape(tf.GradientTape(), op="sum") as tape:
            rows = tf.gather(sources["table"].value, list(range(step + bps.rank() + 1)))
            loss = tf.reduce_sum(rows) + tf.reduce_sum(sources["a"]) * tf.reduce_sum(sources["b"])
        gradients = tape.gradient(loss, [sources[name].value for name in order])
        dense = [tf.convert_to_tensor(gradient).numpy().tolist() for gradient in gradients]
        results.append(dict(zip(order, dense, strict=True)))
    tf.config.run_functions_eagerly(False)
    return results


def broadcast_copies():
    own = [1.0, 2.0] if bps.rank() == 0 else [float("nan"), float("inf")]
    eager = bps.broadcast(tf.constant(own), 0).numpy()
    graph = tf.function(lambda x: bps.broadcast(x, 0))(tf.constant(own)).numpy()
    return eager, graph


def while_loop():
    """Iterations of one push_pull whose inputs are ready in another order on each worker."""

    def delayed(i):
        def wait(i):
            # Early iterations are late, differently on each worker.
            time.sleep(0.02 * ((7 * int(i) + 3 * bps.rank()) % 5))
            return np.float32(i)

        value = tf.numpy_function(wait, [i], tf.float32, stateful=False)
        return tf.ensure_shape(value, [])

    @tf.function
    def function(count):
        results = tf.TensorArray(tf.float32, 12)

        def body(i, results):
            total = bps.push_pull(delayed(i), op="sum", name="loop")
            return i + 1, results.write(i, total)

        _, results = tf.while_loop(
            lambda i, _: i < count, body, [0, results], parallel_iterations=10
        )
        return results.stack()

    return [function(tf.constant(12)).numpy().tolist() for _ in range(2)]


def one_name_in_program_order():
    """Nested functions, branches and plain uses of one name; nothing but the name orders them."""
    variable = tf.Variable(0.0)

    @tf.function
    def inner(x):
        return bps.push_pull(x + variable, op="sum", name="nested")

    @tf.function
    def outer(x):
        first = inner(x)
        second = inner(10 * x)
        third = bps.push_pull(100 * x, op="sum", name="nested")
        fourth = tf.cond(x > 0, lambda: bps.push_pull(1000 * x, op="sum", name="nested"), lambda: x)
        return first, second, third, fourth, inner(10000 * x)

    return [[float(v) for v in outer(tf.constant(1.0))] for _ in range(5)]


def alternating_shapes(name=None):
    """The same function, called with two shapes in turn, within one graph and from outside."""

    @tf.function
    def exchange(x):
        return bps.push_pull(x, op="sum", name=name)

    @tf.function
    def both(a, b):
        return exchange(a), exchange(b), exchange(a), exchange(b)

    a, b = tf.fill([2], 1.0), tf.fill([3], 10.0)
    inside = [value.numpy().tolist() for value in both(a, b)]
    outside = [exchange(x).numpy().tolist() for x in (a, b, a, b)]
    return inside, outside


def unnamed():
    """Exchanges without names, retraced on worker 0 alone."""

    @tf.function
    def function(x, retrace):
        del retrace
        return bps.push_pull(x, op="sum") + 10 * bps.push_pull(2 * x, op="sum")

    return [float(function(tf.constant(1.0), step if bps.rank() == 0 else 0)) for step in range(3)]


def slices():
    """IndexedSlices with other rows on each worker, some twice."""
    rank = bps.rank()
    value = tf.IndexedSlices(
        tf.constant([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]]) * (rank + 1),
        tf.constant([5, rank, 5]),
        tf.constant([9, 2]),
    )
    results = {}
    for op in ("sum", "average"):
        eager = bps.push_pull(value, op=op, name=f"slices/{op}")
        graph = tf.function(lambda op=op: bps.push_pull(value, op=op, name=f"slices.graph/{op}"))()
        results[op] = [
            (each.indices.numpy().tolist(), tf.convert_to_tensor(each).numpy())
            for each in (eager, graph)
        ]
    return results


def slices_of_several_ranks():
    """At one place, in a list: the third time the traced function knows no rank any more."""
    shapes = []
    for shape in ([2, 3], [2, 3, 4], [2], [2, 3]):
        value = tf.IndexedSlices(tf.ones(shape), tf.constant([0, 1]))
        for each in bps.grouped_allreduce([value, value], op=bps.Sum, name="several ranks"):
            assert (each.values.numpy() == bps.size()).all()
            shapes.append(each.values.shape.as_list())
    return shapes


def refusals():
    """Messages of calls that are wrong on their own."""
    wrong = {
        "bool": lambda: bps.push_pull(tf.constant([True])),
        "string": lambda: bps.push_pull(tf.constant("text")),
        "complex": lambda: bps.push_pull(tf.constant([1j])),
        "ragged": lambda: bps.gather(tf.ragged.constant([[1], []])),
        "integer average": lambda: bps.push_pull(tf.constant([1])),
        "average and op": lambda: bps.push_pull(tf.ones(1), average=True, op="sum"),
        "unknown op": lambda: bps.push_pull(tf.ones(1), op="median"),
        "least rows": lambda: bps.push_pull(
            tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0])), op="min"
        ),
        "scalar gather": lambda: bps.gather(tf.constant(1.0)),
        "empty name": lambda: bps.push_pull(tf.ones(1), name=""),
    }
    results = {}
    for name, call in wrong.items():
        try:
            call()
        except Exception as error:
            results[name] = (type(error).__name__, str(error))
    return results


def disagreements():
    """Workers that send different things under one name: the message that each gets."""
    rank = bps.rank()
    cases = {
        "shape": lambda: bps.push_pull(tf.ones([2 + rank]), name="differs.shape"),
        "dtype": lambda: bps.push_pull(
            tf.ones([2], tf.float64 if rank else tf.float32), name="differs.dtype"
        ),
        "op": lambda: bps.push_pull(tf.ones([2]), op="sum" if rank else "max", name="differs.op"),
        "kind": lambda: (
            bps.broadcast(tf.ones([2]), 0, name="differs.kind")
            if rank
            else bps.push_pull(tf.ones([2]), name="differs.kind")
        ),
        "unnamed shape": lambda: bps.push_pull(tf.ones([2 + rank])),
        "unnamed rank": lambda: bps.broadcast(tf.ones([2] * (1 + min(rank, 1))), 0),
        "unnamed dtype": lambda: bps.gather(tf.ones([2], tf.float64 if rank else tf.float32)),
    }
    copied = tf.uint16 if rank else tf.int16
    cases["copied"] = lambda: bps.gather(tf.ones([2], copied), name="differs.copied")
    results = {}
    for case, call in cases.items():
        for mode, function in (("eager", call), ("graph", tf.function(call))):
            try:
                function()
            except tf.errors.FailedPreconditionError as error:
                results[case, mode] = error.message
    return results


def refused_by_one():
    """Worker 0's calls are wrong on their own, the others' are right: the message that each gets,
    and what a right call of all gives after that."""
    is_wrong = bps.rank() == 0
    whole, half = tf.ones([2], tf.int32), tf.ones([2])
    calls = {
        "average": lambda name: bps.push_pull(whole if is_wrong else half, name=name),
        "list": lambda name: bps.push_pull([whole, half] if is_wrong else [half, half], name=name),
        "op": lambda name: bps.push_pull(half, op="median" if is_wrong else "sum", name=name),
        "root": lambda name: bps.broadcast(half, bps.size() if is_wrong else 0, name=name),
        "scalar": lambda name: bps.gather(half[0] if is_wrong else half, name=name),
    }
    results = {}
    for case, call in calls.items():
        for name in (f"refused.{case}", None):
            try:
                call(name)
            except (TypeError, ValueError, tf.errors.OpError) as error:
                results[case, name] = (type(error).__name__, str(error))
        results[case, "after"] = [
            float(tf.reduce_sum(bps.push_pull(half, name=f"refused.{case}"))),
            *(float(each[0]) for each in bps.push_pull([half, half], name=f"refused.{case}")),
        ]
    return results


def refused_in_flight():
    """Worker 0's call is wrong while its call before is in flight, which the others join later:
    what each gets of the two rounds, and of the next."""
    name, outcomes = "refused in flight", []

    def call(op):
        try:
            outcomes.append(bps.push_pull(tf.constant(1.0), op=op, name=name).numpy())
        except (ValueError, tf.errors.OpError) as error:
            outcomes.append(str(error))

    is_wrong = bps.rank() == 0 and bps.size() > 1
    first = threading.Thread(target=call, args=["sum"])
    if is_wrong:
        first.start()
        wait_until(lambda: name in _engine.next_rounds(), 300)
        call("median")
        bps.push_pull(tf.constant(0.0), name="refused in flight/go on")
        first.join()
    else:
        bps.push_pull(tf.constant(0.0), name="refused in flight/go on")
        call("sum")
        call("sum")
    call("sum")
    return outcomes


def one_name_in_two_threads():
    """Two exchanges of one name, alive at once in one worker; the others send theirs later."""
    outcome = []
    started = lambda: _engine.worker_counters()["started_exchanges"]  # noqa: E731
    before = started()

    def first():
        outcome.append(bps.push_pull(tf.constant(1.0), op="sum", name="two threads").numpy())

    error = None
    if bps.rank() == 0:
        thread = threading.Thread(target=first)
        thread.start()
        wait_until(lambda: started() > before)
        try:
            bps.push_pull(tf.constant(1.0), op="sum", name="two threads")
        except tf.errors.FailedPreconditionError as caught:
            error = caught.message
        bps.push_pull(tf.constant(0.0), name="two threads/go on")
        thread.join()
    else:
        bps.push_pull(tf.constant(0.0), name="two threads/go on")
        outcome.append(bps.push_pull(tf.constant(1.0), op="sum", name="two threads").numpy())
    return outcome, error


def cancelled_step():
    """Worker 0's step fails while it waits for an exchange that no other worker sends."""
    if bps.rank() != 0:
        # If they left the job, that would also end worker 0's exchange.
        bps.push_pull(tf.constant(1.0), name="after the step has failed")
        return None

    @tf.function
    def function(x):
        total = bps.push_pull(x, op="sum", name="nobody else sends this")
        with tf.control_dependencies([tf.debugging.Assert(x > 1.0, ["the step fails"])]):
            return total + tf.identity(x)

    try:
        function(tf.constant(1.0))
    except tf.errors.InvalidArgumentError as error:
        bps.push_pull(tf.constant(1.0), name="after the step has failed")
        return error.message
    return None
