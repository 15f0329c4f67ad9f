"""What `tf.distribute.Strategy` promises, checked in each worker. See also `library_programs`."""

import json
import os

import numpy as np
import tensorflow as tf
from numpy.testing import assert_allclose, assert_equal

import tf_byteps as bps
from tests.strategy.contract_helpers import numpy, raises, replica
from tests.strategy.contract_variables import (  # noqa: F401
    keras_variables,
    parts_written_in_a_replica,
    random_streams,
    read_outside_of_replicas,
    refused_variables,
    saved_and_restored,
    written_in_a_replica,
    written_outside_of_replicas,
)
from tests.strategy.library_programs import call, input_fn_iterable, replica_id, summaries  # noqa: F401  (scenarios of the same processes)

SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN


# Reducing and gathering.


def reduce():
    """`Strategy.reduce` of host tensors, structures and whole batches."""
    strategy, rank, size = bps.BytePSStrategy(), bps.rank(), bps.size()
    total = sum(range(1, size + 1))
    value = tf.constant([1.0, 2.0]) * (rank + 1)
    for sum_op in (SUM, "SUM", "sum"):
        assert_equal(numpy(strategy.reduce(sum_op, value, axis=None)), [total, 2 * total])
    for mean_op in (MEAN, "MEAN", "mean"):
        mean = strategy.reduce(mean_op, value, axis=None).numpy()
        assert_allclose(mean, [total / size, 2 * total / size])
    nest = {"a": value, "b": [tf.constant(3), (5.0, np.float64(rank))]}
    reduced = numpy(strategy.reduce("SUM", nest, axis=None))
    expected = {"a": [total, 2 * total], "b": [3 * size, (5.0 * size, total - size)]}
    assert_equal(reduced, expected)
    mean = strategy.reduce("MEAN", tf.constant([1, 4]) * (rank + 1), axis=None)
    assert mean.dtype == tf.float64  # as with TensorFlow's strategies
    assert_allclose(mean, [total / size, 4 * total / size])
    rows = tf.fill([rank + 1, 2], float(rank + 1))  # workers have 1, 2, ... rows
    squares = sum(number**2 for number in range(1, size + 1))
    assert_equal(strategy.reduce("SUM", rows, axis=0).numpy(), [squares] * 2)
    assert_allclose(strategy.reduce(MEAN, rows, axis=0).numpy(), [squares / total] * 2)
    assert_allclose(strategy.reduce("MEAN", rows, axis=(0, 1)).numpy(), squares / total)
    slices = tf.IndexedSlices(tf.ones([2, 1]), tf.constant([rank, 5]), tf.constant([9, 1]))
    dense = tf.convert_to_tensor(strategy.reduce("SUM", slices, axis=None)).numpy()
    assert_equal(dense[:, 0], [float(row < size) + size * (row == 5) for row in range(9)])
    with raises(ValueError, "MAX"):
        strategy.reduce("MAX", value, axis=None)


def reduce_in_function():
    strategy, rank, size = bps.BytePSStrategy(), bps.rank(), bps.size()
    total = sum(range(1, size + 1))

    @tf.function
    def step(x):
        own = strategy.run(lambda x: {"loss": x * 2, "rows": tf.ones([3])}, args=(x,))
        return (
            strategy.reduce("SUM", own["loss"], axis=None),
            strategy.reduce("MEAN", own["rows"], axis=0),
            strategy.gather(own["rows"], axis=0),
        )

    loss, mean, rows = step(tf.constant(float(rank + 1)))
    assert_equal([float(loss), float(mean), len(rows)], [2 * total, 1.0, 3 * size])


def batch_reduce_to():
    """`StrategyExtended.reduce_to` and `batch_reduce_to`, with destinations of every kind."""
    strategy, rank, size = bps.BytePSStrategy(), bps.rank(), bps.size()
    total = sum(range(1, size + 1))
    with strategy.scope():
        variable = tf.Variable(1.0)
        mine = tf.constant(float(rank + 1))
        assert float(strategy.extended.reduce_to("SUM", mine, variable)) == total
        assert float(strategy.extended.reduce_to(MEAN, mine, "/device:CPU:0")) == total / size
        slices = tf.IndexedSlices(mine[None], tf.constant([0]), tf.constant([2]))
        pairs = [(mine, variable), (2 * mine, "/device:CPU:0"), (slices, variable)]
        for op, factor in (("SUM", 1), (SUM, 1), ("mean", size)):
            first, second, third = strategy.extended.batch_reduce_to(op, pairs)
            assert_allclose([float(first), float(second)], [total / factor, 2 * total / factor])
            assert_allclose(tf.convert_to_tensor(third), [total / factor, 0])


def all_reduce():
    """In a replica: nests, slices, and gradients through it."""
    strategy, rank, size = bps.BytePSStrategy(), bps.rank(), bps.size()
    total = sum(range(1, size + 1))

    def check():
        def fn():
            mine = tf.constant([1.0]) * (rank + 1)
            # Workers have 1, 2, ... rows.
            rows, indices = tf.ones([rank + 1]), tf.fill([rank + 1], rank)
            slices = tf.IndexedSlices(rows, indices, tf.constant([size]))
            with tf.GradientTape() as tape:
                tape.watch(mine)
                summed = replica().all_reduce("SUM", {"a": mine**2, "b": [mine]})
                mean = replica().all_reduce(MEAN, mine)
                gathered = replica().all_gather(mine * [1.0, 2.0], axis=0)
                weight = float(rank + 2)
                loss = weight * (summed["a"] + summed["b"][0] + mean)
                loss += tf.reduce_sum(gathered)
            return {
                "sum": summed,
                "mean": mean,
                "int": replica().all_reduce("mean", tf.constant([rank + 1])),
                "slices": tf.convert_to_tensor(replica().all_reduce(SUM, slices)),
                "gradient": tape.gradient(loss, mine),
            }

        return strategy.run(fn)

    for result in (check(), tf.function(check)()):
        squares = sum(number**2 for number in range(1, size + 1))
        assert_equal(numpy(result["sum"]), {"a": [squares], "b": [[total]]})
        assert_allclose(result["mean"], [total / size])
        assert_allclose(result["int"], [total / size])
        assert_equal(result["slices"].numpy(), list(range(1, size + 1)))
        # Each worker's loss has its weight; the gathered elements enter every worker's loss.
        weights = sum(range(2, size + 2))
        gradient = weights * 2 * (rank + 1) + weights + weights / size + 3 * size
        assert_allclose(result["gradient"], [gradient])


def gather():
    strategy, rank, size = bps.BytePSStrategy(), bps.rank(), bps.size()
    mine = tf.fill([2, rank + 1, 1], rank)
    columns = [worker for worker in range(size) for _ in range(worker + 1)]
    for axis in (1, -2):
        gathered = strategy.gather(mine, axis=axis)
        assert_equal(gathered.numpy()[:, :, 0], [columns, columns])
    nest = strategy.gather({"a": tf.constant([rank]), "b": (tf.constant([[rank, 0]]),)}, axis=0)
    assert_equal(numpy(nest["a"]), list(range(size)))
    assert_equal(numpy(nest["b"][0]), [[worker, 0] for worker in range(size)])
    with raises(ValueError, "a scalar cannot be gathered"):
        strategy.gather(tf.constant(1.0), axis=0)
    with raises(ValueError, "along axis 3"):
        strategy.gather(mine, axis=3)
    with raises(NotImplementedError, "IndexedSlices"):
        strategy.gather(tf.IndexedSlices(tf.ones([1]), tf.constant([0])), axis=0)


# Contexts.


def contexts():
    strategy, rank, size = bps.BytePSStrategy(), bps.rank(), bps.size()
    seen = {}

    def look(place):
        context = replica()
        seen[place] = (
            tf.distribute.has_strategy(),
            tf.distribute.get_strategy() is strategy,
            tf.distribute.in_cross_replica_context(),
            tf.get_static_value(context.replica_id_in_sync_group) if context else None,
        )

    def merge(given, a, b=0):
        assert given is strategy
        look("merge_call")
        with strategy.scope():
            look("scope in merge_call")
        return {"sum": a + b}

    def fn(a):
        look("run")
        assert replica().strategy is strategy and replica().num_replicas_in_sync == size
        result = replica().merge_call(merge, args=(a,), kwargs={"b": 2})
        look("run after merge_call")
        return result

    look("outside")
    with strategy.scope():
        look("scope")
        variable = tf.Variable(1.0)
        result = strategy.run(fn, args=(1,))
        strategy.extended.update(variable, lambda v: look("update"))
    tf.function(lambda: strategy.run(lambda: look("run in function")))()
    assert_equal(result, {"sum": 3})
    cross, in_replica = (True, True, True, None), (True, True, False, rank)
    assert_equal(
        seen,
        {
            "outside": (False, False, False, 0),
            "scope": cross,
            "run": in_replica,
            "merge_call": cross,
            "scope in merge_call": cross,
            "run after merge_call": in_replica,
            "update": cross,
            "run in function": in_replica,
        },
    )
    assert strategy.num_replicas_in_sync == size
    assert strategy.extended.worker_devices == strategy.extended.parameter_devices


def misuse():
    """What TensorFlow refuses of every strategy, before anything is exchanged."""
    strategy, other = bps.BytePSStrategy(), bps.BytePSStrategy()
    one = tf.constant([1.0])
    with raises(RuntimeError, "Mixing different tf.distribute.Strategy objects"), strategy.scope():
        with other.scope():
            pass
    with raises(RuntimeError, "Mixing different tf.distribute.Strategy objects"):
        with tf.distribute.OneDeviceStrategy("CPU:0").scope():
            strategy.run(lambda: one)
    refused = "Method requires being in cross-replica context"
    for wrong, message in (
        (lambda: strategy.run(lambda: one), refused),
        (lambda: strategy.reduce("SUM", one, axis=None), refused),
        (lambda: strategy.gather(one, axis=0), "requires cross-replica context"),
        (lambda: strategy.extended.reduce_to("SUM", one, "CPU:0"), refused),
    ):
        with raises(RuntimeError, message):
            strategy.run(wrong)
    contexts = []
    strategy.run(lambda: contexts.append(replica()))
    with raises(RuntimeError, "Need to be inside `call_for_each_replica()`"):
        with strategy.scope():
            contexts[0].merge_call(lambda given: None)
    with raises(ValueError, "positional args must be a list or tuple"):
        strategy.run(lambda x: x, args=one)
    assert not tf.distribute.has_strategy()


class _Refused(Exception):
    pass


def exceptions():
    """What a replica raises arrives as it is, and nothing is left behind."""
    strategy = bps.BytePSStrategy()
    error = _Refused("with", ["its", "arguments"])

    def fail(given=None):
        raise error

    def fail_in_merge_call():
        replica().merge_call(fail)

    for function in (fail, fail_in_merge_call):
        try:
            strategy.run(function)
        except _Refused as caught:
            assert caught is error
        with raises(_Refused, "arguments"):
            tf.function(lambda f=function: strategy.run(f))()
        assert not tf.distribute.has_strategy()
    with raises(tf.errors.InvalidArgumentError, "not this"):
        strategy.run(lambda: tf.debugging.assert_equal(1, 2, "not this"))
    assert float(strategy.reduce("SUM", 1.0, axis=None)) == bps.size()


def run():
    """Arguments and results of `run`, in functions too."""
    strategy, rank = bps.BytePSStrategy(), bps.rank()
    options = tf.distribute.RunOptions()
    traces = []

    def fn(nest, *, scale, none=None, text="x"):
        traces.append(text)
        return {"scaled": [nest["a"] * scale, (nest["b"],)], "none": none, "text": text}

    @tf.function
    def traced(nest, scale):
        kwargs = {"scale": scale, "text": "y"}
        return strategy.run(fn, args=[nest], kwargs=kwargs, options=options)

    nest = {"a": tf.constant([1.0, 2.0]) * (rank + 1), "b": tf.constant(["words"])}
    for _ in range(3):
        result = traced(nest, tf.constant(2.0))
    assert traces == ["y"]
    assert_equal(result["scaled"][0].numpy(), np.array([2.0, 4.0]) * (rank + 1))
    assert result["scaled"][1][0].numpy() == [b"words"]
    assert result["none"] is None and result["text"] == "y"
    eager = strategy.run(fn, args=(nest,), kwargs={"scale": 3.0})
    assert_equal(eager["scaled"][0].numpy(), np.array([3.0, 6.0]) * (rank + 1))
    for value in (tf.constant(1.0), 5, "text", [tf.constant(1)]):
        assert strategy.experimental_local_results(value) == (value,)


# Input.


def input_context():
    strategy, rank, size = bps.BytePSStrategy(), bps.rank(), bps.size()
    contexts = []

    def dataset(context):
        contexts.append(context)
        batch = context.get_per_replica_batch_size(4 * size)
        rows = tf.data.Dataset.range(8 * size)
        rows = rows.shard(context.num_input_pipelines, context.input_pipeline_id)
        return rows.batch(batch)

    batches = list(strategy.distribute_datasets_from_function(dataset))
    assert_equal(
        [batch.numpy() for batch in batches], np.arange(rank, 8 * size, size).reshape(2, 4)
    )
    (context,) = contexts
    assert context.num_input_pipelines == context.num_replicas_in_sync == size
    assert context.input_pipeline_id == rank
    if size > 1:
        with raises(ValueError, "not divisible"):
            context.get_per_replica_batch_size(4 * size + 1)
    per_replica = tf.distribute.InputOptions(
        experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
        experimental_fetch_to_device=False,
    )
    with raises(NotImplementedError, "PER_REPLICA is not supported"):
        strategy.distribute_datasets_from_function(dataset, per_replica)
    value = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(
            [context.replica_id_in_sync_group, context.num_replicas_in_sync]
        )
    )
    assert_equal(value.numpy(), [rank, size])


def partial_batches():
    """Nested elements in batches that no number of workers divides, in loops of every kind."""
    strategy, rank, size = bps.BytePSStrategy(), bps.rank(), bps.size()
    rows = tf.data.Dataset.range(9).map(lambda i: {"x": [i, i], "y": (i,)}).batch(4)
    distributed = strategy.experimental_distribute_dataset(rows)
    expected = []
    for begin, length in ((0, 4), (4, 4), (8, 1)):
        piece = -(-length // size)
        own = range(min(rank * piece, length), min((rank + 1) * piece, length))
        expected.append([begin + row for row in own])
    for _ in range(2):
        batches = list(distributed)
        assert_equal([batch["y"][0].numpy().tolist() for batch in batches], expected)
        assert_equal([batch["x"].shape[1] for batch in batches], [2] * 3)
    assert distributed.element_spec["y"][0].dtype == tf.int64

    @tf.function
    def all_rows():
        total = tf.constant(0, tf.int64)
        for batch in distributed:
            own = strategy.run(lambda batch: tf.reduce_sum(batch["y"][0]), args=(batch,))
            total += strategy.reduce("SUM", own, axis=None)
        return total

    assert int(all_rows()) == sum(range(9))
    iterator = iter(distributed)
    steps = [tf.function(lambda: next(iterator))() for _ in range(3)]
    assert_equal([step["y"][0].numpy().tolist() for step in steps], expected)
    with raises(tf.errors.OutOfRangeError, ""):
        tf.function(lambda: next(iterator))()
    assert not iterator.get_next_as_optional().has_value()


# The job.


def cluster_resolver():
    """The one of `TF_CONFIG`; without it, see `cluster_without_tf_config`."""
    resolver = bps.BytePSStrategy().cluster_resolver
    assert isinstance(resolver, tf.distribute.cluster_resolver.ClusterResolver)
    config = json.loads(os.environ["TF_CONFIG"])
    assert_equal(resolver.cluster_spec().as_dict(), config["cluster"])
    assert (resolver.task_type, resolver.task_id) == ("worker", bps.rank())
    assert resolver.master() == config["cluster"]["worker"][bps.rank()]
    assert resolver.num_accelerators() == {"GPU": 0}  # TensorFlow's own tests look this up
    return resolver.cluster_spec().as_dict()


def cluster_with_chief():
    """The same processes in another job, whose worker 0 is called chief. The last scenario."""
    bps.shutdown()
    config = json.loads(os.environ["TF_CONFIG"])
    first, *others = config["cluster"]["worker"]
    cluster = {"chief": [first], "worker": others} if others else {"chief": [first]}
    index = config["task"]["index"]
    task = {"type": "worker", "index": index - 1} if index else {"type": "chief", "index": 0}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
    strategy = bps.BytePSStrategy()
    resolver = strategy.cluster_resolver
    assert_equal(resolver.cluster_spec().as_dict(), cluster)
    assert_equal({"type": resolver.task_type, "index": resolver.task_id}, task)
    assert float(strategy.reduce("SUM", 1.0, axis=None)) == 1 + len(others)


def cluster_without_tf_config():
    """A job begun by other variables than `TF_CONFIG`, or by none."""
    resolver = bps.BytePSStrategy().cluster_resolver
    assert (resolver.task_type, resolver.task_id) == ("worker", bps.rank())
    return resolver.cluster_spec().as_dict()["worker"], resolver.master()


def cluster_of_evaluator():
    """An evaluator is a job of its own."""
    bps.shutdown()
    trainers = {"worker": ["host0:1", "host1:1"]}
    task = {"type": "evaluator", "index": 0}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": trainers, "task": task})
    strategy = bps.BytePSStrategy()
    resolver = strategy.cluster_resolver
    assert strategy.num_replicas_in_sync == 1
    assert (resolver.task_type, resolver.task_id) == ("evaluator", 0)
    assert resolver.cluster_spec().as_dict() == trainers


def repeated_construction():
    """Strategies come and go in one process; each works, with its own variables."""
    rank, size = bps.rank(), bps.size()
    total = sum(range(1, size + 1))
    strategies = [bps.BytePSStrategy() for _ in range(3)]
    made = []
    for strategy in strategies:
        with strategy.scope():
            made.append(tf.Variable(float(rank + 1), aggregation=tf.VariableAggregation.SUM))
    for strategy, variable in zip(strategies, made):
        assert strategy.extended.variable_created_in_scope(variable)
        strategy.run(lambda v=variable: v.assign_add(float(rank + 1)))
        assert float(variable) == 1.0 + total
        assert strategy.cluster_resolver.task_id == rank
    assert not strategies[0].extended.variable_created_in_scope(made[1])
    del strategies, made, strategy, variable
    assert float(bps.BytePSStrategy().reduce("SUM", rank + 1.0, axis=None)) == total


def summary_recording():
    """Within `run`, also in a function, only replica 0 records."""
    strategy, rank = bps.BytePSStrategy(), bps.rank()
    with tf.summary.create_noop_writer().as_default(step=0):
        assert not tf.summary.should_record_summaries()  # of a writer that does nothing
    folder = os.path.join(os.environ["CONTRACT_FOLDER"], f"summary-{bps.size()}-{rank}")
    with tf.summary.create_file_writer(folder).as_default(step=0):
        recorded = [strategy.run(lambda: tf.summary.scalar("a", 1.0))]
        recorded.append(tf.function(lambda: strategy.run(lambda: tf.summary.scalar("b", 1.0)))())
        with strategy.scope():
            recorded.append(tf.summary.scalar("cross", 1.0))
        recorded.append(tf.summary.should_record_summaries())
    assert_equal([bool(each) for each in recorded], [rank == 0, rank == 0, True, True])
    assert (
        strategy.extended.should_save_summary == strategy.extended.should_checkpoint == (rank == 0)
    )
