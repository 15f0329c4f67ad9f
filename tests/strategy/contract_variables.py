"""What variables promise in a strategy: each synchronization with each aggregation."""

import os

import keras
import numpy as np
import tensorflow as tf
from numpy.testing import assert_allclose, assert_equal

import tf_byteps as bps
from tests.strategy.contract_helpers import numpy, raises, replica

AUTO = tf.VariableSynchronization.AUTO
ON_WRITE = tf.VariableSynchronization.ON_WRITE
ON_READ = tf.VariableSynchronization.ON_READ
NONE = tf.VariableAggregation.NONE
SUM = tf.VariableAggregation.SUM
MEAN = tf.VariableAggregation.MEAN
FIRST = tf.VariableAggregation.ONLY_FIRST_REPLICA


def together(aggregation, function):
    """What `function` of each rank amounts to."""
    values = [function(rank) for rank in range(bps.size())]
    return {SUM: sum(values), MEAN: sum(values) / len(values), FIRST: values[0]}[aggregation]


def create(strategy, value, aggregation, synchronization=AUTO, **arguments):
    with strategy.scope():
        return tf.Variable(
            value, aggregation=aggregation, synchronization=synchronization, **arguments
        )


def both_runs(strategy, function):
    """Runs `function` in a replica, eagerly and as a `tf.function`."""
    strategy.run(function)
    tf.function(lambda: strategy.run(function))()


def written_in_a_replica():
    """`AUTO` and `ON_WRITE`: what a replica writes is aggregated over all workers."""
    strategy, rank = bps.BytePSStrategy(), bps.rank()
    mine = tf.constant(float(rank + 1))
    for synchronization in (AUTO, ON_WRITE):
        for aggregation in (SUM, MEAN, FIRST):
            variable = create(strategy, float(rank + 1), aggregation, synchronization)
            amount = together(aggregation, lambda worker: worker + 1.0)
            literal = together(aggregation, lambda worker: 2.0)
            assert variable.trainable and variable.aggregation == aggregation
            both_runs(strategy, lambda v=variable: v.assign(10 * mine))
            assert_allclose(variable.numpy(), 10 * amount)
            both_runs(strategy, lambda v=variable: v.assign_add(mine))
            assert_allclose(variable.numpy(), 12 * amount)
            both_runs(strategy, lambda v=variable: v.assign_sub(mine))
            assert_allclose(float(variable), 10 * amount)
            strategy.run(lambda v=variable: v.assign(2.0))
            assert_allclose(variable.read_value(), literal)
            seen = strategy.run(lambda v=variable: v.assign(mine) + 0.0)
            assert_allclose(seen, amount)


def written_outside_of_replicas():
    """In cross-replica context and in updates a value is everyone's already."""
    strategy, rank = bps.BytePSStrategy(), bps.rank()
    for synchronization in (AUTO, ON_WRITE):
        for aggregation in (NONE, SUM, MEAN, FIRST):
            variable = create(strategy, float(rank), aggregation, synchronization)
            strategy.run(lambda: None)  # initial values are worker 0's
            assert float(variable) == 0.0
            variable.assign(3.0)
            with strategy.scope():
                variable.assign_add(1.0)
                strategy.extended.update(variable, lambda v, x: v.assign_sub(x), args=(2.0,))

            def update(v=variable):
                def merge(given):
                    given.extended.update(v, lambda v: v.assign_add(10.0))

                replica().merge_call(merge)

            both_runs(strategy, update)
            strategy.run(
                lambda v=variable: strategy.extended.update(v, lambda v: v.assign_add(5.0))
            )
            assert float(variable) == 27.0
    own = create(strategy, 0.0, NONE)
    both_runs(strategy, lambda: own.assign(float(rank)))
    assert float(own) == rank  # without an aggregation a replica writes its own


def parts_written_in_a_replica():
    """Slices, scattered rows, other dtypes, and variables that are arguments of functions."""
    strategy, rank, size = bps.BytePSStrategy(), bps.rank(), bps.size()
    total = sum(range(1, size + 1))
    rows = tf.IndexedSlices(tf.constant([1.0, rank + 1.0]), tf.constant([rank, size]))
    for aggregation, divisor in ((SUM, 1), (MEAN, size)):
        variable = create(strategy, tf.zeros([size + 1]), aggregation)
        both_runs(strategy, lambda v=variable: v.scatter_add(rows))
        expected = np.array([2.0] * size + [2 * total]) / divisor
        assert_allclose(variable, expected, 1e-6)
        strategy.run(lambda v=variable: v.scatter_sub(rows))
        assert_allclose(variable, expected / 2, 1e-6)
        strategy.run(lambda v=variable: v[1:2].assign([rank + 1.0]))
        assert_allclose(variable[1], total / divisor)
        with raises(NotImplementedError, "scatter_update in strategy.run does not work"):
            strategy.run(lambda v=variable: v.scatter_update(rows))
        with raises(NotImplementedError, "scatter_nd_add in strategy.run does not work"):
            strategy.run(lambda v=variable: v.scatter_nd_add([[0]], [1.0]))
        variable.scatter_update(tf.IndexedSlices([7.0], [0]))
        assert float(variable[0]) == 7.0
    first = create(strategy, tf.zeros([size + 1]), FIRST)
    more = tf.IndexedSlices(tf.repeat(rows.values, rank + 1), tf.repeat(rows.indices, rank + 1))
    strategy.run(lambda: first.scatter_update(more))  # workers have 2, 4, ... rows
    assert_equal(first.numpy(), [1.0] + [0.0] * (size - 1) + [1.0])
    switch = create(strategy, False, FIRST)
    strategy.run(lambda: switch.assign(rank == 0))
    assert bool(switch)
    count = create(strategy, 0, SUM)
    strategy.run(lambda: count.assign_add(rank + 1))
    assert int(count) == total

    @tf.function
    def write(variable, value):
        variable.assign(value)

    for variable in (create(strategy, 0.0, SUM), create(strategy, 0.0, MEAN)):
        strategy.run(write, args=(variable, tf.constant(rank + 1.0)))
        assert_allclose(variable, together(variable.aggregation, lambda worker: worker + 1.0))

    @tf.function
    def in_branches(times):
        def fn():
            for _ in tf.range(times):
                if times > 1:
                    count.assign_add(1)

        strategy.run(fn)

    count.assign(0)
    in_branches(tf.constant(3))
    assert int(count) == 3 * size


def read_outside_of_replicas():
    """`ON_READ`: local in a replica, aggregated where it is read elsewhere."""
    strategy, rank, size = bps.BytePSStrategy(), bps.rank(), bps.size()
    for aggregation in (SUM, MEAN, FIRST):
        variable = create(strategy, float(rank + 1), aggregation, ON_READ)
        assert not variable.trainable
        # Initial values are worker 0's.
        assert_allclose(variable.numpy(), together(aggregation, lambda worker: 1.0))
        both_runs(strategy, lambda v=variable: v.assign_add(float(rank)))
        own = lambda worker: 1.0 + 2 * worker  # noqa: E731
        amount = together(aggregation, own)
        assert_allclose(strategy.run(lambda v=variable: v + 0.0), own(rank))
        assert_allclose(strategy.run(lambda v=variable: v.read_value()), own(rank))
        with strategy.scope():
            assert_allclose(variable.read_value(), amount)
        assert_allclose(tf.function(lambda v=variable: v * 2)(), 2 * amount)
        assert_allclose([float(variable), variable.numpy(), variable.value()], [amount] * 3)
        assert_allclose(strategy.reduce("SUM", variable, axis=None), together(SUM, own))
        assert_allclose(strategy.reduce("MEAN", variable, axis=None), together(MEAN, own))
        assert_allclose(strategy.experimental_local_results(variable)[0], own(rank))
        if rank == 0:
            assert "this worker's value=" in repr(variable)  # without the others
        # A value for all is read again as it was written.
        for context in (strategy.scope, tf.init_scope):
            with context():
                variable.assign(8.0 * size)
            assert_allclose(variable, 8.0 * size)
        assert float(strategy.run(lambda v=variable: v + 0.0)) == 8.0 * (
            1 if aggregation == SUM else size
        )
        if aggregation == SUM:
            with raises(ValueError, "assign_add outside of strategy.run would count once"):
                variable.assign_add(1.0)
        else:
            variable.assign_sub(1.0)
            assert_allclose(variable, 8.0 * size - 1)
    table = create(strategy, tf.ones([2, 2]) * tf.range(2.0), SUM, ON_READ)
    assert_equal(tf.gather(table, [1])[0].numpy(), [0.0, float(size)])
    local = create(strategy, 1.0, NONE, ON_READ)
    strategy.run(lambda: local.assign(float(rank)))
    assert float(strategy.run(lambda: local + 0.0)) == rank
    with raises(ValueError, "so that it can be read in strategy.run only"):
        local.numpy()


def refused_variables():
    strategy = bps.BytePSStrategy()
    with raises(ValueError, "has synchronization NONE"):
        create(strategy, 1.0, NONE, tf.VariableSynchronization.NONE)
    with raises(ValueError, "aggregation MEAN and dtype int32"):
        create(strategy, 1, MEAN)


class _Counter(tf.Module):
    def __init__(self, strategy):
        with strategy.scope():
            self.weight = tf.Variable(2.0, aggregation=MEAN)
            self.seen = tf.Variable(0.0, aggregation=SUM, synchronization=ON_READ)
            self.largest = tf.Variable(0.0, aggregation=FIRST, synchronization=ON_READ)

    @tf.function(input_signature=[tf.TensorSpec([])])
    def __call__(self, x):
        return self.weight * x


def saved_and_restored():
    """A checkpoint holds the workers' values together; a SavedModel works without the job."""
    strategy, rank, size = bps.BytePSStrategy(), bps.rank(), bps.size()
    folder = os.path.join(os.environ["CONTRACT_FOLDER"], f"variables-{size}-{rank}")
    module = _Counter(strategy)

    def see():
        module.seen.assign_add(float(rank + 1))
        module.largest.assign(float(rank + 5))

    strategy.run(see)
    path = tf.train.Checkpoint(module=module).save(os.path.join(folder, "checkpoint"))
    reader = tf.train.load_checkpoint(path)
    key = "module/{}/.ATTRIBUTES/VARIABLE_VALUE"
    total = sum(range(1, size + 1))
    assert_equal([float(reader.get_tensor(key.format("seen")))], [total])
    assert_equal([float(reader.get_tensor(key.format("largest")))], [5.0])
    restored = _Counter(strategy)
    tf.train.Checkpoint(module=restored).restore(path).assert_consumed()
    assert_allclose([float(restored.seen), float(restored.largest)], [total, 5.0])
    assert_allclose(strategy.run(lambda: restored.seen + 0.0), total / size)

    @tf.function(input_signature=[tf.TensorSpec([])])
    def write(value):
        strategy.run(lambda: module.weight.assign_add(value))

    module.write = write
    module.write(tf.constant(rank + 1.0))
    weight = 2.0 + total / size
    tf.saved_model.save(module, os.path.join(folder, "saved"))
    if rank == 0:  # no other worker takes part
        loaded = tf.saved_model.load(os.path.join(folder, "saved"))
        assert_allclose(loaded(tf.constant(3.0)), 3 * weight)
        loaded.write(tf.constant(1.0))
        assert_allclose(loaded.weight, weight + 1)
        assert not isinstance(loaded.weight, type(module.weight))


def keras_variables():
    """What Keras creates for itself never communicates: worker 0 alone may use it."""
    strategy, rank, size = bps.BytePSStrategy(), bps.rank(), bps.size()
    with strategy.scope():
        metric = keras.metrics.Mean()
        optimizer = keras.optimizers.SGD()
        shared = keras.Variable(0.0, aggregation="mean")
    strategy.run(lambda: None)
    if rank == 0:
        strategy.run(lambda: metric.update_state([1.0, 3.0]))
        assert float(metric.result()) == 2.0
        strategy.run(lambda: optimizer.iterations.assign_add(1))
        assert int(optimizer.iterations) == 1
    strategy.run(lambda: shared.assign(float(rank)))
    assert_allclose(numpy(shared), (size - 1) / 2)


def random_streams():
    """A generator that is made in the scope gives each replica numbers of its own."""
    strategy = bps.BytePSStrategy()
    with strategy.scope():
        generator = tf.random.Generator.from_seed(3)
    own = strategy.run(lambda: generator.uniform([2]))
    everyone = strategy.gather(own, axis=0).numpy()
    assert len(set(everyone)) == 2 * bps.size()
