"""What needs no second worker."""

import contextlib
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_byteps as bps
from tests.gpu_in_sight import gpu_in_sight
from tf_byteps.exchange import unsupported
from tf_byteps.training.speed import _Meter


@pytest.fixture(autouse=True)
def runtime():
    bps.init()
    yield
    bps.shutdown()


def test_speed_is_bytes_per_second_also_with_a_new_engine():
    times, counts = iter([1.0, 3.0, 4.0, 4.0]), iter([100, 500, 30, 30])
    meter = _Meter(lambda: next(counts), lambda: next(times))
    assert [meter.rate() for _ in range(4)] == [0.0, 200.0, 30.0, 0.0]


def test_automatic_choice_of_xla(caplog):
    def choice(strategy=None, optimizer="sgd", **options):
        with strategy.scope() if strategy else contextlib.nullcontext(), gpu_in_sight():
            model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
            model.compile(optimizer, "mse", **options)
            return model.jit_compile

    def wrapped():
        return bps.DistributedOptimizer(keras.optimizers.SGD())

    assert choice()
    assert choice(optimizer=wrapped())
    assert not choice(optimizer=wrapped(), jit_compile=False)
    assert choice(bps.BytePSStrategy())
    with caplog.at_level("INFO", "tf_byteps"):
        assert not choice(bps.BytePSStrategy(merge_repeated_rows=False))
    assert "merge_repeated_rows=False: XLA does not compile the steps" in caplog.text


def test_xla_cannot_keep_repeated_rows_apart():
    table = tf.Variable(tf.ones([4, 3]))

    @tf.function(jit_compile=True)
    def gradient():
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(tf.gather(table, [1, 1]))
        return bps.DistributedGradientTape(tape, merge_repeated_rows=False).gradient(total, table)

    with pytest.raises(ValueError, match="merge_repeated_rows=False in a function that XLA comp"):
        gradient()


def test_optimizer_bears_its_own_name():
    given = keras.optimizers.Adam(0.1)
    wrapped = bps.DistributedOptimizer(given, name="prefix")
    assert type(wrapped).__name__ == "Adam" and isinstance(wrapped, keras.optimizers.Adam)
    assert wrapped.iterations is given.iterations
    copy = type(wrapped).from_config(wrapped.get_config())
    assert type(copy) is keras.optimizers.Adam
    restored = keras.optimizers.deserialize(keras.optimizers.serialize(wrapped))
    assert type(restored) is keras.optimizers.Adam


@pytest.mark.parametrize("name, expected", [(None, "gradient/v"), ("left", "left/gradient/v")])
def test_exchanges_bear_the_optimizers_name(name, expected):
    variable = keras.Variable(1.0, name="v")
    optimizer = bps.DistributedOptimizer(keras.optimizers.SGD(), name=name)
    optimizer.build([variable])

    @tf.function
    def step():
        optimizer.apply([tf.constant(1.0)], [variable])

    operations = step.get_concrete_function().graph.get_operations()
    names = [op.get_attr("tensor_name") for op in operations if op.type == "BytePSPushPull"]
    assert names == [expected.encode()]


def test_checkpoints_are_those_of_the_plain_optimizer(tmp_path):
    variable = keras.Variable([1.0])
    wrapped = bps.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    wrapped.apply([tf.constant([2.0])], [variable])
    path = tf.train.Checkpoint(optimizer=wrapped).save(tmp_path / "checkpoint")
    plain = keras.optimizers.SGD(0.1, momentum=0.9)
    plain.build([variable])
    tf.train.Checkpoint(optimizer=plain).restore(path).assert_existing_objects_matched()
    assert int(plain.iterations) == 1
    assert float(plain.momentums[0][0]) == pytest.approx(-0.2)


def test_registered_class_is_saved_under_its_registered_name():
    @keras.saving.register_keras_serializable("my_package")
    class MyOptimizer(keras.optimizers.SGD):
        pass

    config = keras.optimizers.serialize(bps.DistributedOptimizer(MyOptimizer(0.1)))
    assert config["registered_name"] == "my_package>MyOptimizer"
    assert type(keras.optimizers.deserialize(config)) is MyOptimizer


def test_optimizers_that_cannot_be_wrapped():
    wrapped = bps.DistributedOptimizer(keras.optimizers.SGD())
    with pytest.raises(ValueError, match="distributed already"):
        bps.DistributedOptimizer(wrapped)
    with pytest.raises(ValueError, match="distributed already"):
        bps.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(wrapped))
    with pytest.raises(TypeError, match="Keras 3 optimizer"):
        bps.DistributedOptimizer("adam")
    with pytest.raises(ValueError, match="at least 1, got 0"):
        bps.DistributedOptimizer(keras.optimizers.SGD(), backward_passes_per_step=0)
    accumulating = keras.optimizers.SGD(gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match="leave out backward_passes_per_step"):
        bps.DistributedOptimizer(accumulating, backward_passes_per_step=2)
    with pytest.raises(ValueError, match="'average' or 'sum'"):
        bps.DistributedOptimizer(keras.optimizers.SGD(), op=bps.Max)
    with pytest.raises(TypeError, match="process_set must be a tf_byteps.ProcessSet, got 1"):
        bps.DistributedOptimizer(keras.optimizers.SGD(), process_set=1)


def test_accumulation_of_an_optimizer_that_has_trained():
    variable = keras.Variable([0.0])
    optimizer = keras.optimizers.SGD(1.0)
    optimizer.apply([tf.constant([1.0])], [variable])
    wrapped = bps.DistributedOptimizer(optimizer, backward_passes_per_step=2)
    assert int(wrapped.iterations) == 1
    wrapped.apply([tf.constant([1.0])], [variable])
    assert float(variable[0]) == -1.0
    wrapped.apply([tf.constant([2.0])], [variable])
    assert float(variable[0]) == -4.0 and int(wrapped.iterations) == 2


def test_schedule_callback_refuses_an_optimizer_with_a_schedule():
    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate), "mse")
    callback = bps.keras.callbacks.LearningRateScheduleCallback(0.5)
    with pytest.raises(ValueError, match="schedule of its own"):
        model.fit(tf.zeros([1, 1]), tf.zeros([1, 1]), verbose=0, callbacks=[callback])


def test_every_public_name_can_be_imported():
    assert [name for name in bps.__all__ if getattr(bps, name, None) is None] == []


def test_what_is_left_out_stands_in_the_documentation():
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text()
    for name, instead in unsupported.INSTEAD.items():
        assert f"| `{name}` | {instead} |" in page
        with pytest.raises(NotImplementedError, match=name):
            getattr(bps, name)()


def test_flash_attention_without_a_gpu_is_that_of_keras(caplog):
    def trained(**options):
        keras.utils.set_random_seed(1)
        with bps.BytePSStrategy(**options).scope():
            inputs = keras.Input([6, 16])
            attended = keras.layers.MultiHeadAttention(2, 8)(inputs, inputs)
            model = keras.Model(inputs, attended)
            model.compile("sgd", "mse", jit_compile=True)
        x = np.random.default_rng(1).normal(size=(8, 6, 16))
        model.fit(x, x, verbose=0)
        return model.get_weights()

    plain = trained()
    with caplog.at_level("INFO", "tf_byteps"):
        fused = trained(flash_attention=True)
    for ours, theirs in zip(fused, plain, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert "Keras computes an attention, because XLA does not compile it for a GPU" in caplog.text
    with pytest.raises(TypeError, match="flash_attention must be True or False, got 'yes'"):
        bps.BytePSStrategy(flash_attention="yes")
