"""A worker's rows of a batch lie in memory of their own."""

import numpy as np
import pytest
import tensorflow as tf

from tests.user_arrays import aligned
from tf_byteps.ops.library import kernels
from tf_byteps.strategy.input import pieces

# As large as several blocks of the copy, and not a multiple of one.
_LARGE = (1500, 1001)
_TYPES = ["float32", "float64", "float16", "bfloat16", "uint8", "int64", "bool", "complex64"]


@pytest.mark.parametrize("dtype", _TYPES)
def test_rows_are_those_of_a_slice(dtype):
    values = tf.cast(tf.random.uniform((7, 3, 2), 0, 99, tf.int32), dtype)
    for begin, end in ((0, 7), (0, 4), (4, 7), (7, 7), (0, 0)):
        rows = pieces.copied_rows(values, begin, end)
        assert np.array_equal(rows.numpy(), values[begin:end].numpy())


def test_many_rows():
    values = np.random.default_rng(0).random(_LARGE)
    rows = pieces.copied_rows(tf.constant(values), 1, 1499)
    assert np.array_equal(rows.numpy(), values[1:1499])


def test_text_is_copied_too():
    rows = pieces.copied_rows(tf.constant(["a", "b", "c"]), 1, 3)
    assert rows.numpy().tolist() == [b"b", b"c"]


def test_rows_without_columns():
    assert pieces.copied_rows(tf.zeros((4, 0)), 1, 3).shape == (2, 0)


def test_the_shape_is_known_while_tracing():
    cut = tf.data.Dataset.from_tensors(tf.zeros((8, 5))).map(
        lambda batch: (
            pieces.copied_rows(batch, 0, 4),
            pieces.copied_rows(batch, 0, tf.shape(batch)[0]),
        )
    )
    known, unknown = cut.element_spec
    assert known.shape.as_list() == [4, 5]
    assert unknown.shape.as_list() in ([8, 5], [None, 5])


def test_the_array_behind_a_batch_is_not_written():
    """TensorFlow takes an aligned array as it is, and computes in the memory of a slice of it."""
    values = aligned(np.ones(4096, "float32"))
    batches = tf.data.Dataset.from_tensors(0).map(
        lambda _: tf.numpy_function(lambda: values, [], tf.float32)
    )
    negative = batches.map(lambda batch: -pieces.copied_rows(batch, 0, 2048))
    assert next(iter(negative)).numpy().sum() == -2048
    assert values.sum() == 4096


def test_own_batches_are_copied_too():
    """Where a GPU takes them; numbers that are no batch stay as they are."""
    element = {"x": tf.reshape(tf.range(6), (3, 2)), "step": tf.constant(7)}
    dataset = tf.data.Dataset.from_tensors(element)
    (copied,) = pieces.copied(dataset)
    assert np.array_equal(copied["x"].numpy(), element["x"].numpy())
    assert copied["step"].numpy() == 7
    (plain,) = pieces.copied(tf.data.Dataset.from_tensors(element["x"]))
    assert np.array_equal(plain.numpy(), element["x"].numpy())


@pytest.mark.parametrize("begin, end", [(-1, 2), (2, 1), (0, 5)])
def test_rows_that_do_not_exist_are_an_error(begin, end):
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"rows {begin} to {end} of a tensor"):
        kernels().byte_ps_copy_rows(tf.zeros((4, 2)), begin, end)
