"""What the workers of the API's tests run. Every function returns what JSON can hold."""

import threading
import time
import traceback

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.cluster import wait_until
from tests.errors import error_of
from tf_byteps import _engine


def values(nested):
    return tf.nest.map_structure(lambda t: np.asarray(t, "float64").tolist(), nested)


def slices_values(slices):
    return [slices.indices.numpy().tolist(), values(slices.values)]


# push_pull.


def operations():
    """Enum, string in any case, and the older `average` (A1 of the original)."""
    x = tf.constant([1.0, 6.0]) + 2.0 * bps.rank()
    ops = (bps.Sum, "sum", "AVERAGE", bps.Min, "max", bps.ReduceOp.AVERAGE)
    by_op = [values(bps.push_pull(x, op=op)) for op in ops]
    return by_op + [values(bps.push_pull(x, average=flag)) for flag in (True, False, None)]


def both_orders_of_arguments():
    """BytePS has `scope` in second place, Horovod has `average`."""
    x = tf.constant([1.0 + bps.rank()])
    return [
        values(bps.push_pull(x, "layer", False)),
        values(bps.allreduce(x, False, "/cpu:0", "", bps.Compression.none)),
        values(bps.push_pull(x, device_dense="/gpu:0", device_sparse="/cpu:0")),
    ]


def _other_config():
    """What it says of this worker's own addresses is left out."""
    kind, message = error_of(bps.BytePSStrategy, bps.Config(part_bytes=8192))
    return [kind, message.partition(":")[0]]


def refused_arguments():
    x = tf.constant([1.0])
    return {
        "both": error_of(bps.push_pull, x, average=True, op="sum"),
        "scope": error_of(bps.push_pull, x, True),
        "unknown op": error_of(bps.push_pull, x, op="median"),
        "adasum": error_of(bps.push_pull, x, op=bps.Adasum),
        "asynchronous": error_of(bps.push_pull, x, enable_async=True),
        "integer average": error_of(bps.push_pull, tf.constant([1])),
        "integer scale": error_of(bps.push_pull, tf.constant([1]), op="sum", prescale_factor=0.5),
        "dtype": error_of(bps.push_pull, tf.constant(["a"])),
        "process set": error_of(bps.allreduce, x, process_set=1),
        "sparse minimum": error_of(bps.push_pull, _slices([0], [[1.0]]), op="min"),
        "compression": error_of(bps.push_pull, x, compression="int5"),
        "gradients' compression": error_of(bps.DistributedGradientTape, None, compression=8),
        "priority": error_of(bps.push_pull, x, priority=1.5),
        "root": error_of(bps.broadcast, x, "0"),
        "no root": error_of(bps.broadcast, x, 2),
        "gradient": error_of(bps.allgather, x, gradient="mean"),
        "cross_step": error_of(bps.BytePSStrategy, cross_step="no"),
        "config": error_of(bps.BytePSStrategy, {"a": 1}),
        "other config": _other_config(),
        "global variables": error_of(bps.broadcast_global_variables, 0),
    }


def scaling_and_compression():
    x = tf.constant([1.0, 3.0]) * (1.0 + bps.rank())
    scale = {"prescale_factor": 0.5, "postscale_factor": 8.0}
    results = [values(bps.push_pull(x, op="sum", **scale))]
    for compression in ("FP16", bps.Compression.bf16):
        for dtype in (tf.float32, tf.float64):
            result = bps.push_pull(tf.cast(x, dtype) * 1.001, compression=compression)
            results.append([result.dtype.name, values(result)])
    integers = bps.push_pull(tf.constant([3]), op="sum", compression=bps.Compression.fp16)
    return [*results, [integers.dtype.name, values(integers)]]


def dtypes():
    """All eight, not four (A8)."""
    names = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
    tensors = {name: tf.cast([1, 2 + bps.rank()], name) for name in names}
    return {name: values(bps.push_pull(tensor, op="sum")) for name, tensor in tensors.items()}


def lists():
    """A list of different shapes, eager and traced; no name is shared."""
    tensors = [tf.ones([3]) * bps.rank(), tf.constant(2.0), tf.ones([2, 2])]

    @tf.function
    def traced():
        return bps.push_pull(tensors, op="sum"), bps.grouped_allreduce(tensors, op="max")

    eager = bps.push_pull(tensors, op="sum", name="group")
    return [type(eager).__name__, values(eager), values(traced())]


def _slices(indices, rows):
    return tf.IndexedSlices(tf.constant(rows), tf.constant(indices), tf.constant([9, 2]))


def sparse():
    """Workers with different rows; duplicates within and between them are merged (A7)."""
    if bps.rank() == 0:
        own = _slices([7, 1, 7], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    else:
        own = _slices([1], [[10.0, 20.0]])
    traced = tf.function(lambda: bps.push_pull(own, op="sum", name="traced"), autograph=False)
    dense = bps.push_pull(own, op="sum", sparse_as_dense=True)
    return {
        "average": slices_values(bps.push_pull(own)),
        "traced sum": slices_values(traced()),
        "compressed": slices_values(bps.push_pull(own, compression=bps.Compression.bf16)),
        "scaled": slices_values(bps.push_pull(own, op="sum", postscale_factor=2.0)),
        "dense": values(dense[:3]),
        "dtypes": [_sparse_of(name) for name in ("float64", "float16", "bfloat16", "int64")],
    }


def _sparse_of(name):
    slices = tf.IndexedSlices(tf.cast([[1], [2]], name), tf.constant([3, 3 + bps.rank()], tf.int64))
    return slices_values(bps.push_pull(slices, op="sum"))


def sparse_without_rows():
    rows = [[1.0, 2.0]] if bps.rank() == 0 else np.zeros([0, 2], "float32")
    own = tf.IndexedSlices(tf.constant(rows), tf.constant([4] * len(rows), tf.int64))
    return slices_values(bps.push_pull(own))


def sparse_is_one_exchange():
    own = _slices([bps.rank()], [[1.0, 2.0]])
    before = _engine.worker_counters()["exchanges"]
    bps.push_pull(own, name="counted")
    return _engine.worker_counters()["exchanges"] - before


def unnamed_in_eager_loops():
    """A name of its own for each call would leak and need all workers to count alike (A4)."""
    from tf_byteps.ops import library

    results = []
    for step in range(3):
        results.append(values(bps.push_pull(tf.constant([1.0 * step]), op="sum")))
        if step == 0:
            known = len(library._tokens)
    return [results, len(library._tokens) - known]


def opposite_orders():
    """Keys come from names, not from the order of declaration (A5)."""
    names = ["first", "second"] if bps.rank() == 0 else ["second", "first"]
    shapes = {"first": [2], "second": [3]}

    @tf.function(autograph=False)
    def exchange():
        return {
            name: bps.push_pull(tf.fill(shapes[name], float(len(name))), op="sum", name=name)
            for name in names
        }

    return {name: values(tensor) for name, tensor in sorted(exchange().items())}


def changed_size():
    """Another size under a known name is fine, unless workers disagree (A6)."""
    results = [values(bps.push_pull(tf.ones([size]), op="sum", name="x")) for size in (2, 5)]
    error = error_of(bps.push_pull, tf.ones([2 + bps.rank()]), op="sum", name="x")
    results.append(values(bps.push_pull(tf.ones([2]), op="sum", name="x")))
    return [results, error]


def cancelled_exchanges_complete_later():
    """The answer to an exchange of a step that has failed comes when that step is long gone."""
    late_names = [f"late/{index}" for index in range(8)]
    late_bytes = len(late_names) * 4 * tf.float32.size

    def late():
        return [bps.push_pull(tf.ones([4]), op="sum", name=name) for name in late_names]

    @tf.function(autograph=False)
    def failing():
        bad = bps.push_pull(tf.ones([2 + bps.rank()]), op="sum", name="bad")
        return bad, late() if bps.rank() == 0 else []

    errors, results = [], []
    for _ in range(5):
        sent = _engine.worker_counters()["pushed_bytes"] + late_bytes
        step = threading.Thread(target=lambda: errors.append(error_of(failing)[0]))
        if bps.rank() == 0:
            step.start()
            wait_until(lambda enough=sent: _engine.worker_counters()["pushed_bytes"] >= enough)
        bps.allgather_object(None, name="all of worker 0 is sent")
        if bps.rank() == 1:
            step.start()
        step.join()
        bps.allgather_object(None, name="the steps have failed")
        if bps.rank() == 1:
            results += late()
        bps.allgather_object(None, name="the answers are there")
    return [errors, sorted({tuple(result.numpy().tolist()) for result in results})]


# Broadcasts, objects, numbers.


def broadcasts():
    """A broadcast copies: a NaN elsewhere does not survive."""
    value = tf.constant([1.0, 2.0]) if bps.rank() == 1 else tf.constant([np.nan, np.inf])
    variables = [tf.Variable(value, name="v"), tf.Variable([3 + bps.rank()], name="v")]
    result = values(bps.broadcast(value, 1, name="value"))
    bps.broadcast_(variables, root_rank=1)
    return [result, values(variables)]


def variables():
    """Grouped, by path, in a function too; bool and unsigned ones as well."""
    own = 1.0 + bps.rank()
    some = [
        tf.Variable([own, own], name="a"),
        keras.Variable(np.full([2, 3], own), name="b"),
        tf.Variable(bps.rank() == 0, name="flag"),
        tf.Variable(tf.constant([bps.rank()], tf.uint32), name="seed"),
    ]
    if bps.rank() == 1:
        some.reverse()  # the order does not matter
    bps.broadcast_variables(some, root_rank=0)
    eager = [v.numpy().tolist() for v in (some if bps.rank() == 0 else some[::-1])]
    traced_variable = tf.Variable(own)

    @tf.function
    def first_step(first):
        traced_variable.assign_add(10.0)
        if first:
            bps.broadcast_variables([traced_variable], root_rank=1)

    first_step(True)
    return [eager, float(traced_variable)]


def different_variables():
    some = [tf.Variable([1.0], name="common")]
    if bps.rank() == 1:
        some.append(tf.Variable([1.0, 2.0], name="extra"))
    traced = tf.function(lambda: bps.broadcast_variables(some, 0), autograph=False)
    return [error_of(bps.broadcast_variables, some, 0), error_of(traced)]


def objects():
    array = np.arange(6, dtype="float16").reshape(2, 3)
    given = {
        "text": "ä",
        "numbers": [1, -(2**63), 2.5, float("inf"), True, None],
        3: (1, (b"\x00bytes", "x")),
        "array": array,
        "scalar": np.float32(0.1),
        "empty": [],
    }
    got = bps.broadcast_object(given if bps.rank() == 1 else None, root_rank=1)
    same = (
        list(got) == list(given)
        and got[3] == given[3]
        and got["numbers"] == given["numbers"]
        and got["array"].dtype == array.dtype
        and (got["array"] == array).all()
        and type(got["scalar"]) is np.float32
    )
    gathered = bps.allgather_object({"rank": bps.rank(), "rows": [0] * bps.rank()})
    return [same, gathered]


def objects_that_cannot_be_sent():
    """All workers raise, also those whose own object is fine; nobody waits."""
    bad = {"model": [object()]} if bps.rank() == 0 else 1
    return [
        error_of(bps.broadcast_object, bad, 0),
        error_of(bps.allgather_object, bad),
        error_of(bps.broadcast_object, tf.constant(1) if bps.rank() == 0 else None),
        error_of(bps.broadcast_object, 1, root_rank=2),
        error_of(tf.function(lambda: bps.allgather_object(1), autograph=False)),
    ]


def runtime_numbers():
    @tf.function
    def traced():
        return bps.rank_op(), bps.size_op(), bps.local_rank_op(), bps.local_size_op()

    constants = [
        node.name
        for node in traced.get_concrete_function().graph.as_graph_def().node
        if node.op == "Const"
    ]
    return [values(traced()), values(bps.size_op()), constants]


def speed():
    begin = bps.get_pushpull_speed()
    bps.push_pull(tf.ones([250_000]), op="sum", name="a megabyte")
    end = bps.get_pushpull_speed()
    time.sleep(0.01)
    return [begin[1], end[1] > 0, end[0] >= begin[0], bps.get_pushpull_speed()[1]]


# The gradient tape.


def tape():
    """Dense, sparse, unconnected and given output gradients; eager and traced (A2, A3)."""
    weights = tf.Variable([[1.0], [2.0]], name="same")
    bias = tf.Variable([0.5], name="same")  # eager gradients must not meet under one name
    table = tf.Variable(tf.ones([4, 2]), name="table")
    unused = tf.Variable(1.0)
    x = tf.constant([[1.0, 2.0]]) * (1.0 + bps.rank())
    sources = [weights, {"bias": bias, "table": table}, unused]

    def gradients(op, **options):
        with bps.DistributedGradientTape(tf.GradientTape(), op=op, **options) as recording:
            rows = tf.gather(table, [bps.rank(), 3, 3])
            loss = tf.reduce_sum(tf.matmul(x, weights) + bias) + tf.reduce_sum(rows)
        return recording.gradient(loss, sources, tf.constant(2.0))

    def shown(result):
        result[1]["table"] = tf.convert_to_tensor(result[1]["table"])
        return values(result[:2]) + [result[2] is None]

    traced = tf.function(gradients, autograph=False)
    return {
        "sum": shown(gradients("sum")),
        "average": shown(gradients(bps.Average)),
        "traced": shown(traced("average")),
        "as dense": shown(traced("average", sparse_as_dense=True)),
        "predivided": shown(
            gradients("average", gradient_predivide_factor=4.0, compression=bps.Compression.fp16)
        ),
        "refused": [
            error_of(gradients, "max"),
            error_of(gradients, "sum", gradient_predivide_factor=2.0),
            error_of(bps.DistributedGradientTape, None),
        ],
    }


def tape_around_a_recorded_one():
    """Horovod's way: the tape is wrapped after it has recorded; the given one stays local."""
    x = tf.Variable(3.0)
    own = 1.0 + bps.rank()
    with tf.GradientTape(persistent=True) as local:
        y = own * x * x
    distributed = bps.DistributedGradientTape(local)
    unconnected = distributed.gradient(y, tf.Variable([1.0]), None, tf.UnconnectedGradients.ZERO)
    distributed.register_local_source(x)
    kept = distributed.gradient(y, [x])
    return [
        isinstance(distributed, tf.GradientTape),
        values(local.gradient(y, x)),
        values(bps.DistributedGradientTape(local).gradient(y, x)),
        values(unconnected),
        values(kept),
        values(distributed.jacobian(y, x)),
    ]


def retracing_on_one_worker():
    """A retrace on one worker alone finds the same names again."""
    variable = tf.Variable([1.0, 2.0])

    @tf.function(reduce_retracing=False)
    def step(x):
        with bps.DistributedGradientTape(tf.GradientTape()) as recording:
            loss = tf.reduce_sum(variable * tf.reduce_mean(x))
        return recording.gradient(loss, variable), bps.push_pull(tf.reduce_sum(x), op="sum")

    lengths = (4, 4, 4) if bps.rank() == 0 else (4, 3, 2)
    return [values(step(tf.ones([length]))) for length in lengths]


# Keras.


def averaged_metrics():
    logs = {"loss": 1.0 + bps.rank(), "accuracy": 0.5}
    callback = bps.keras.callbacks.MetricAverageCallback()
    callback.on_epoch_end(0, logs)
    different = {"loss": 1.0} if bps.rank() == 0 else {"loss": 1.0, "val_loss": 2.0}
    return [logs, error_of(callback.on_epoch_end, 1, different)]


def keras_values():
    array = np.array([1.0, 2.0], "float32") * (1 + bps.rank())
    hvd = bps.keras
    return [
        type(hvd.push_pull(array)).__name__,
        values(hvd.allreduce(array, name="a", average=False)),
        values(hvd.push_pull(3.0 + bps.rank(), name="b", op="max")),
        values(hvd.broadcast(array, 1, name="c")),
        values(hvd.allgather(array[: bps.rank() + 1], name="d")),
        hvd.size(),
    ]


def learning_rates():
    """Warm-up to the full rate; the momentum is corrected when the rate changes."""
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    optimizer = bps.keras.DistributedOptimizer(keras.optimizers.SGD(0.8, momentum=0.9))
    model.compile(optimizer, "mse")
    rates = []

    class Recorder(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            rates.append(float(self.model.optimizer.learning_rate))

    warmup = bps.keras.callbacks.LearningRateWarmupCallback(warmup_epochs=2, verbose=1)
    schedule = bps.keras.callbacks.LearningRateScheduleCallback(
        lambda epoch: 0.1, start_epoch=2, initial_lr=0.8
    )
    x = np.zeros([4, 1], "float32")
    history = model.fit(
        x, x, batch_size=2, epochs=3, verbose=0, callbacks=[warmup, schedule, Recorder()]
    )
    velocity = optimizer.momentums[0]
    velocity.assign([[2.0]])
    schedule.initial_lr = 0.4
    schedule._set_rate(2)
    return [rates, history.history["lr"], float(velocity.numpy()[0, 0])]


def local_variables():
    """A registered variable keeps its own gradient, divided by the number of workers."""
    shared, own = keras.Variable([1.0]), keras.Variable([1.0])
    optimizer = bps.keras.DistributedOptimizer(keras.optimizers.SGD(1.0))
    optimizer.register_local_var(own)
    gradient = tf.constant([1.0 + 2 * bps.rank()])
    optimizer.apply([gradient, gradient], [shared, own])
    return values([shared.value, own.value])


def pushes_with_accumulation():
    """Gradients are pushed once for each update, not in each step (protocol rule 27)."""
    variable = keras.Variable(np.zeros([50_000], "float32"), name="large")
    optimizer = bps.keras.DistributedOptimizer(
        keras.optimizers.SGD(1.0, gradient_accumulation_steps=4)
    )

    @tf.function
    def step():
        optimizer.apply([tf.ones([50_000])], [variable])

    step()
    before = _engine.worker_counters()["pushed_bytes"]
    for _ in range(8):
        step()
    return _engine.worker_counters()["pushed_bytes"] - before


def within_the_strategy():
    """A distributed optimizer in the strategy's scope reduces once, not twice."""

    def train(wrap):
        keras.backend.clear_session()
        keras.utils.set_random_seed(2)
        strategy = bps.BytePSStrategy()
        with strategy.scope():
            model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
            model.compile(wrap(keras.optimizers.SGD(0.1, clipnorm=0.1)), "mse")
        x = np.random.RandomState(0).normal(size=[16, 3]).astype("float32")
        model.fit(x, x[:, :1], batch_size=8, shuffle=False, verbose=0)
        before = _engine.worker_counters()["exchanges"]
        model.fit(x, x[:, :1], batch_size=8, shuffle=False, verbose=0)
        exchanges = _engine.worker_counters()["exchanges"] - before
        return [w.tolist() for w in model.get_weights()], exchanges

    plain, wrapped = train(lambda o: o), train(bps.DistributedOptimizer)
    refused = error_of(train, lambda o: bps.DistributedOptimizer(o, sparse_as_dense=True))
    return [plain == wrapped, refused]


PROGRAMS = (
    operations,
    both_orders_of_arguments,
    refused_arguments,
    scaling_and_compression,
    dtypes,
    lists,
    sparse,
    sparse_without_rows,
    sparse_is_one_exchange,
    unnamed_in_eager_loops,
    opposite_orders,
    changed_size,
    cancelled_exchanges_complete_later,
    broadcasts,
    variables,
    different_variables,
    objects,
    objects_that_cannot_be_sent,
    runtime_numbers,
    speed,
    tape,
    tape_around_a_recorded_one,
    retracing_on_one_worker,
    averaged_metrics,
    keras_values,
    learning_rates,
    local_variables,
    pushes_with_accumulation,
    within_the_strategy,
)


def run_all():
    """Called in each worker: {program: its result, or "error": its traceback}."""
    bps.init()
    results = {}
    for program in PROGRAMS:
        try:
            results[program.__name__] = {"result": program()}
        except Exception:
            results[program.__name__] = {"error": traceback.format_exc()}
        bps.allgather_object(None, name=f"after {program.__name__}")
    return results


def suspend_and_resume():
    """In a job whose workers host everything, at the start with TF_CONFIG."""
    bps.init()
    first = values(bps.push_pull(tf.constant([1.0]), op="sum", name="x"))
    step = tf.function(
        lambda: bps.push_pull(tf.constant([2.0]), op="sum", name="x"), autograph=False
    )
    second = values(step())
    bps.suspend()
    suspended = [bps.is_initialized(), error_of(step)]
    bps.resume(num_workers=2, num_servers=0)
    return [first, second, suspended, values(step()), bps.size(), bps.rank()]
