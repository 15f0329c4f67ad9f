"""Updates of rows against Keras's updates of whole tables, in one process."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.selection import some_long
from tf_byteps.keras import optimizers

_ROWS, _WIDTH, _STEPS = 23, 3, 4
_PAIRS = {
    "Adagrad": (optimizers.Adagrad, keras.optimizers.Adagrad, {}),
    "Ftrl": (
        optimizers.Ftrl,
        keras.optimizers.Ftrl,
        {
            "l1_regularization_strength": 0.01,
            "l2_regularization_strength": 0.02,
            "l2_shrinkage_regularization_strength": 0.03,
            "beta": 0.1,
            "learning_rate_power": -0.4,
        },
    ),
    "RMSprop": (optimizers.RMSprop, keras.optimizers.RMSprop, {}),
    "RMSprop, momentum": (optimizers.RMSprop, keras.optimizers.RMSprop, {"momentum": 0.9}),
    "RMSprop, centered": (
        optimizers.RMSprop,
        keras.optimizers.RMSprop,
        {"centered": True, "momentum": 0.9},
    ),
    "Adadelta": (optimizers.Adadelta, keras.optimizers.Adadelta, {}),
    "SGD": (optimizers.LazySGD, keras.optimizers.SGD, {}),
    "SGD, momentum": (optimizers.LazySGD, keras.optimizers.SGD, {"momentum": 0.9}),
    "SGD, nesterov": (
        optimizers.LazySGD,
        keras.optimizers.SGD,
        {"momentum": 0.9, "nesterov": True},
    ),
    "SGD, clipped": (optimizers.LazySGD, keras.optimizers.SGD, {"clipvalue": 0.5}),
    "Adagrad, clipped": (optimizers.Adagrad, keras.optimizers.Adagrad, {"global_clipnorm": 0.3}),
    "Adam": (optimizers.LazyAdam, keras.optimizers.Adam, {}),
    "Adam, amsgrad": (optimizers.LazyAdam, keras.optimizers.Adam, {"amsgrad": True}),
}
_MAKERS = {
    **{name: lambda pair=pair: pair[0](0.1, **pair[2]) for name, pair in _PAIRS.items()},
    "RowWiseAdagrad": lambda: optimizers.RowWiseAdagrad(0.1),
}


def _table(dtype="float32"):
    values = np.random.default_rng(0).normal(size=(_ROWS, _WIDTH)).astype(dtype)
    return keras.Variable(values, dtype=dtype, name="table")


def _gradients(indices_of_step, dtype="float32"):
    random = np.random.default_rng(1)
    for step in range(_STEPS):
        indices = np.asarray(indices_of_step(step, random))
        values = random.normal(size=(len(indices), _WIDTH)).astype(dtype)
        yield tf.IndexedSlices(tf.constant(values), tf.constant(indices), (_ROWS, _WIDTH))


def _all_rows(step, random):
    return random.permutation(_ROWS)


def _some_rows(step, random):
    return random.choice(_ROWS, 6, replace=False)


def _rows_again(step, random):
    return random.integers(0, 5, 9)


def _states(optimizer):
    return [v.numpy() for v in optimizer.variables if v.shape[:1] == (_ROWS,)]


def _after(optimizer, gradients, of_gradient=lambda gradient: gradient):
    table = _table(gradients[0].dtype.name if gradients else "float32")
    optimizer.build([table])
    for gradient in gradients:
        optimizer.apply([of_gradient(gradient)], [table])
    return [table.numpy(), *_states(optimizer)]


def _equal(ours, theirs):
    assert len(ours) == len(theirs) > 0
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", _PAIRS)
def test_where_all_rows_are_looked_up_the_bits_are_keras_own(name, dtype):
    ours, theirs, options = _PAIRS[name]
    gradients = list(_gradients(_all_rows, dtype))
    dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
    _equal(_after(ours(0.1, **options), gradients), _after(theirs(0.1, **options), dense))


@pytest.mark.parametrize("rows", [_some_rows, _rows_again])
@pytest.mark.parametrize("clipping", [{}, {"clipvalue": 0.5}])
def test_adagrad_has_keras_own_bits_for_any_rows(rows, clipping):
    gradients = list(_gradients(rows))
    ours = _after(optimizers.Adagrad(0.1, **clipping), gradients)
    _equal(ours, _after(keras.optimizers.Adagrad(0.1, **clipping), gradients))


def test_the_norm_of_all_gradients_is_keras_own_for_rows_that_occur_several_times():
    """Keras takes it from each occurrence, and computes with a dense gradient then."""
    gradients = list(_gradients(_rows_again, "float64"))
    ours = _after(optimizers.Adagrad(0.1, global_clipnorm=0.3), gradients)
    theirs = _after(keras.optimizers.Adagrad(0.1, global_clipnorm=0.3), gradients)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", _MAKERS)
def test_other_rows_keep_their_bits(name):
    gradient = next(_gradients(_some_rows))
    before = _after(_MAKERS[name](), [])
    after = _after(_MAKERS[name](), [gradient])
    others = np.setdiff1d(np.arange(_ROWS), gradient.indices.numpy())
    _equal([each[others] for each in after], [each[others] for each in before])
    assert not np.array_equal(after[0], before[0])


@pytest.mark.parametrize("name", [name for name in _MAKERS if not name.startswith("Adagrad")])
def test_rows_that_occur_several_times_are_added_up_first(name):
    gradients = list(_gradients(_rows_again))
    sums = []
    for gradient in gradients:
        indices, where = np.unique(gradient.indices.numpy(), return_inverse=True)
        values = tf.math.unsorted_segment_sum(gradient.values, where, len(indices))
        sums.append(tf.IndexedSlices(values, tf.constant(indices), gradient.dense_shape))
    expected = _after(_MAKERS[name](), sums)
    for ours, theirs in zip(_after(_MAKERS[name](), gradients), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
    for gradient in gradients:
        assert gradient.indices.shape == (9,)


@pytest.mark.parametrize("name", _MAKERS)
def test_dense_gradients_do_what_keras_does(name):
    gradients = [tf.convert_to_tensor(each) for each in _gradients(_some_rows)]
    if name in _PAIRS:
        _, theirs, options = _PAIRS[name]
        expected = _after(theirs(0.1, **options), gradients)
    else:
        expected = _after(_MAKERS[name](), gradients, _slices)
    _equal(_after(_MAKERS[name](), gradients), expected)


def _slices(dense):
    return tf.IndexedSlices(dense, tf.range(_ROWS), dense.shape)


def test_row_wise_adagrad_follows_its_rule():
    optimizer = optimizers.RowWiseAdagrad(0.1, initial_accumulator_value=0.5)
    rate = float(optimizer.learning_rate)  # in Keras's floatx
    gradients = list(_gradients(_some_rows, "float64"))
    table, sums = _table("float64").numpy(), np.full((_ROWS, 1), 0.5)
    for gradient in gradients:
        rows, values = gradient.indices.numpy(), gradient.values.numpy()
        sums[rows] += np.square(values).mean(1, keepdims=True)
        table[rows] -= rate * values / (np.sqrt(sums[rows]) + 1e-8)
    ours = _after(optimizer, gradients)
    np.testing.assert_allclose(ours[0], table, rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours[1], sums, rtol=0, atol=1e-12)


def test_row_wise_adagrad_refuses_a_negative_beginning():
    with pytest.raises(ValueError, match="must be at least 0, got -1"):
        optimizers.RowWiseAdagrad(initial_accumulator_value=-1)


@pytest.mark.parametrize(
    "name", some_long(_MAKERS, _MAKERS.keys() - {"Adagrad", "LazyAdam", "RowWiseAdagrad"})
)
def test_a_saved_model_has_the_optimizer_and_its_state(name, tmp_path):
    model = keras.Sequential([keras.Input((2,), dtype="int64"), keras.layers.Embedding(9, 2)])
    model.compile(_MAKERS[name](), "mse", jit_compile=False)
    x, y = np.array([[1, 2], [2, 5]]), np.ones((2, 2, 2))
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is type(model.optimizer)
    for each in (model, loaded):
        each.fit(x, y, verbose=0)
    _equal(loaded.get_weights(), model.get_weights())


@pytest.mark.parametrize("name", _MAKERS)
def test_no_operation_has_as_many_rows_as_the_table(name):
    """A step's time must not grow with the table."""
    optimizer, table = _MAKERS[name](), _table()
    optimizer.build([table])
    rows = tf.TensorSpec((6, _WIDTH)), tf.TensorSpec((6,), tf.int64)

    @tf.function
    def step(values, indices):
        optimizer.apply([tf.IndexedSlices(values, indices, (_ROWS, _WIDTH))], [table])

    operations = step.get_concrete_function(*rows).graph.get_operations()
    outputs = [tensor for operation in operations for tensor in operation.outputs]
    assert len(outputs) > 10
    assert not [each.name for each in outputs if each.shape.rank and each.shape[0] == _ROWS]
