"""What the workers of test_compiled.py do: exchanges in functions that XLA compiles."""

import functools

import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.ops.ops_programs import DTYPES, small_integers
from tf_byteps.ops.reduction import Reduction

compiled = functools.partial(tf.function, jit_compile=True)


def before_init():
    try:
        compiled(lambda x: bps.push_pull(x))(tf.ones(2))
    except tf.errors.FailedPreconditionError as error:
        return error.message


def start():
    bps.init()
    return bps.rank(), bps.size()


def all_dtypes():
    """dtype -> op -> result as float64. All operations of a dtype are in one program."""
    results = {}
    for dtype in DTYPES:
        calls = {
            "sum": lambda x: bps.push_pull(x, op=bps.Sum),
            "min": lambda x: bps.push_pull(x, op="min"),
            "product": lambda x: bps.push_pull(x % 3 + 1, op="product"),
            "max": lambda x: bps.push_pull(x, op=bps.Max),
            "broadcast": lambda x: bps.broadcast(x, root_rank=bps.size() - 1),
            "gather": lambda x: bps.gather(x),
        }
        if tf.as_dtype(dtype).is_floating:
            calls["average"] = lambda x: bps.push_pull(x)

        @functools.partial(compiled, autograph=False)
        def step(x, calls=calls):
            return {op: call(x) for op, call in calls.items()}

        found = step(small_integers(dtype))
        results[dtype] = {op: tf.cast(value, tf.float64).numpy() for op, value in found.items()}
    return results


def tiny_numbers():
    """How often a program makes a number too small for float32's usual form behind an exchange."""

    @compiled
    def step(x):
        return bps.push_pull(x, op=bps.Average, name="tiny") * 1e-20

    x = tf.fill([100_000], 1e-20)
    return sum(np.count_nonzero(step(x).numpy()) for _ in range(20))


def _many(value):
    """Tensors of 1.2 MB, and short ones among them: several that start together, and alone."""
    lengths = [1, 300_000, 2, 3, 300_000, 300_000, 4, 5]
    return [tf.fill([length], value * (number + 1)) for number, length in enumerate(lengths)]


def options():
    """Compression, factors, a list, rows that become dense, and what is asked when it runs."""
    x = tf.fill([3], 1.0 + bps.rank())
    rows = tf.IndexedSlices(
        tf.ones([2, 2]) * (1.0 + bps.rank()), tf.constant([bps.rank(), 3]), tf.constant([6, 2])
    )

    @compiled
    def function(x):
        return {
            "compressed": bps.push_pull(x, op="sum", compression=bps.Compression.bf16),
            "scaled": bps.push_pull(x, op="sum", prescale_factor=2.0, postscale_factor=0.5),
            "list": bps.push_pull([x, 2 * x, 3 * x[:2]], op="sum"),
            "many": [tf.reduce_mean(sum) for sum in bps.push_pull(_many(x[0]), op="sum")],
            "rows": bps.push_pull(rows, op="sum"),
            "place": [bps.rank_op(), bps.size_op(), bps.local_rank_op(), bps.local_size_op()],
            "scalar": bps.push_pull(x[0], op="sum"),
            "nothing": bps.push_pull(x[:0], op="sum"),
        }

    return tf.nest.map_structure(lambda value: np.asarray(value).tolist(), function(x))


def gradients():
    results = {}
    x = tf.Variable(tf.fill([2, 2], float(bps.rank() + 1)))
    weight = tf.constant(float(bps.rank() + 1))
    calls = {
        "sum": lambda: weight * tf.reduce_sum(bps.push_pull(x, op="sum", name="g.sum")),
        "average": lambda: weight * tf.reduce_sum(bps.push_pull(x, name="g.average")),
        "broadcast": lambda: weight * tf.reduce_sum(bps.broadcast(x, 0, name="g.broadcast")),
        "gather": lambda: (
            weight
            * tf.reduce_sum(
                bps.gather(x, name="g.gather") * tf.range(1.0, 1.0 + 2 * bps.size())[:, None]
            )
        ),
    }
    for name, call in calls.items():

        @compiled
        def inside(call=call):
            with tf.GradientTape() as tape:
                loss = call()
            return tape.gradient(loss, x)

        with tf.GradientTape() as tape:
            loss = compiled(call)()
        results[name, "inside"] = inside().numpy()
        results[name, "outside"] = tape.gradient(loss, x).numpy()
    return results


def many_in_flight():
    """200 tensors, traced in another order on each worker."""
    order = np.random.default_rng(bps.rank()).permutation(200)

    @compiled
    def function(x):
        inputs = [x + float(i) for i in order]
        sums = Reduction(bps.Sum).exchange_all(inputs, [f"many/{i}" for i in order])
        return {str(i): value for i, value in zip(order, sums, strict=True)}

    results = [function(tf.fill([100], float(bps.rank()))) for _ in range(3)]
    return [{int(i): float(value[0]) for i, value in result.items()} for result in results]


def starts_before_ends():
    """Worker 0 is compiled: gradients of layers, each used at once. The others ask for one sum
    after the other, the last gradient's first: if worker 0 waited for a sum before it has started
    all, all would wait for ever."""
    layers, size = 8, bps.size()
    weights = [tf.Variable(tf.eye(4)) for _ in range(layers)]
    names = [f"layer/{index}" for index in range(layers)]

    @compiled
    def train(x):
        with tf.GradientTape() as tape:
            value = x
            for weight in weights:
                value = value @ weight
            loss = tf.reduce_sum(value)
        sums = bps.push_pull(tape.gradient(loss, weights), op="sum", name="layer")
        for weight, total in zip(weights, sums, strict=True):
            weight.assign_sub(total / size)
        return sums

    x = tf.ones([4, 4])
    if bps.rank() == 0:
        return [value.numpy()[0, 0].tolist() for value in train(x)]
    sums = [bps.push_pull(4.0 * x, op="sum", name=name).numpy()[0, 0] for name in names]
    return [float(value) for value in sums]


def control_flow():
    """A loop, and a branch that is taken in every second call."""

    @compiled
    def loop(x):
        for _ in tf.range(4):
            x = bps.push_pull(x, op="sum", name="in a loop")
        return x

    @compiled
    def branch(x, taken):
        return tf.cond(taken, lambda: bps.push_pull(x, op="sum", name="in a branch"), lambda: x)

    x = tf.constant([1.0, 2.0])
    branches = [branch(x, tf.constant(i % 2 == 0)).numpy().tolist() for i in range(4)]
    return [loop(x).numpy().tolist() for _ in range(2)], branches


def beside_control_flow():
    """Exchanges of which none needs another's result: outside, in a loop, outside, in branches,
    outside. Also their gradients."""

    @compiled
    def function(x, taken):
        first = bps.push_pull(x, op="sum", name="beside/first")
        looped = tf.while_loop(
            lambda i, _: i < 3,
            lambda i, y: (i + 1, bps.push_pull(y, op="sum", name="beside/loop")),
            (0, 2 * x),
        )[1]
        between = bps.push_pull(3 * x, op="sum", name="beside/between")
        branched = tf.cond(
            taken,
            lambda: bps.push_pull(4 * x, op="sum", name="beside/taken"),
            lambda: bps.push_pull(5 * x, op="sum", name="beside/not taken"),
        )
        last = bps.push_pull([6 * x], op="sum", name="beside/last")[0]
        return first, looped, between, branched, last

    @compiled
    def gradients(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            results = function(x, x[0] < 0)
            loss = tf.add_n([tf.reduce_sum(result) for result in results])
        return bps.push_pull(tape.gradient(loss, x), op="average", name="beside/gradient")

    x = tf.constant([1.0, 2.0])
    values = [
        [float(result[0]) for result in function(x, tf.constant(taken))] for taken in (True, False)
    ]
    program = function.experimental_get_compiler_ir(x, tf.constant(True))(stage="hlo")
    return values, gradients(x).numpy().tolist(), program


def one_name_in_program_order():
    """Uses of one name, also in a function that was traced elsewhere."""

    @tf.function
    def inner(x):
        return bps.push_pull(x, op="sum", name="nested")

    inner(tf.constant(1.0))

    @compiled
    def outer(x):
        first = inner(x)
        second = bps.push_pull(10 * x, op="sum", name="nested")
        third = inner(100 * x)
        return first, second, third, bps.push_pull([1000 * x], op="sum", name="nested")[0]

    return [[float(v) for v in outer(tf.constant(1.0))] for _ in range(5)]


def traced_elsewhere():
    """A function that was traced outside is called in a compiled one, and the other way round."""

    @tf.function
    def plain(x):
        return bps.push_pull([x, 2 * x], op="sum", name="plain")

    @tf.function
    def for_xla(x):
        return bps.push_pull([x, 2 * x], op="sum", name="for xla")

    x = tf.constant([1.0, 2.0])
    results = [plain(x), compiled(plain)(x), compiled(for_xla)(x), for_xla(x)]
    kinds = [
        {node.type for node in each.get_concrete_function(x).graph.get_operations()}
        for each in (plain, for_xla)
    ]
    sums = [[value.numpy().tolist() for value in each] for each in results]
    return sums, ["BytePSPushPull" in kinds[0], "BytePSPushPullAll" in kinds[1]]


def shapes_of_each_worker():
    """Independent exchanges in programs that differ, because the workers' other tensors do."""

    @compiled
    def function(rows, x):
        mean = tf.reduce_sum(rows @ tf.ones([8, 8])) * 0.0
        first = bps.push_pull(x + mean, op="sum", name="independent/0")
        second = bps.push_pull(2 * x, op="sum", name="independent/1")
        count = bps.push_pull(tf.shape(rows)[0], op="sum", name="independent/rows")
        return first, second, count

    return [
        [value.numpy().tolist() for value in function(tf.ones([step + bps.rank(), 8]), tf.ones(4))]
        for step in range(4)
    ]


def refusals():
    """Messages of calls that cannot be compiled, or not with these workers."""
    rows = tf.IndexedSlices(tf.ones([1, 2**10]), tf.constant([0]), tf.constant([2**20, 2**10]))
    wrong = {
        "string": lambda x: bps.broadcast(tf.strings.as_string(x), 0),
        "large table": lambda x: bps.push_pull(rows, op="sum") + x[0],
        "scalar gather": lambda x: bps.gather(x[0]),
        "unknown shape": lambda x: bps.push_pull(tf.where(x > 0), op="sum", name="where"),
    }
    results = {}
    for name, call in wrong.items():
        try:
            compiled(call)(tf.ones(2))
        except Exception as error:
            results[name] = (type(error).__name__, str(error))
    return results


def disagreements():
    """A failure reaches every worker, and the function works afterwards."""

    @compiled
    def function(x, y):
        return bps.push_pull([x, y, x + 1.0, x + 2.0], op="sum", name="differs")

    @compiled
    def gathered(x):
        return bps.gather(x, name="differs.rows")

    rank, x = bps.rank(), tf.ones([1000])
    messages = []
    for call in (
        lambda: function(x, tf.ones([2 + rank])),
        lambda: gathered(tf.ones([1 + rank, 2])),
    ):
        try:
            call()
        except tf.errors.OpError as error:
            messages.append((type(error).__name__, error.message))
    after = [value.numpy()[0].tolist() for value in function(x, tf.ones([2]))]
    return messages, after, gathered(tf.ones([2, 2])).shape.as_list()
