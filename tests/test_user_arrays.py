"""`user_arrays.unchanged` sees what writes to the arrays that a program gives away."""

import numpy as np
import pytest
import tensorflow as tf

from tests import user_arrays


def _batches(watched_by, change):
    """Gives TensorFlow a batch of a generator, and takes what `change` makes of it."""
    batch = np.ones([4, 16], np.float32)
    signature = tf.TensorSpec([4, 16], tf.float32)
    with watched_by:
        dataset = tf.data.Dataset.from_generator(lambda: iter([batch]), output_signature=signature)
        return list(dataset.map(change))


def test_a_view_that_is_computed_with_in_its_place():
    with pytest.raises(AssertionError, match=r"result \d of Python, float32 \(4, 16\)"):
        _batches(user_arrays.unchanged(), lambda batch: tf.exp(batch[0:2]) * 2)


def test_a_copy_that_is_computed_with():
    (result,) = _batches(
        user_arrays.unchanged(), lambda batch: tf.exp(tf.gather(batch, tf.range(2))) * 2
    )
    assert result.shape == [2, 16]


def test_arrays_that_a_program_gives_a_dataset():
    array = np.zeros([3], np.float32)
    with pytest.raises(AssertionError, match="array 0 of from_tensor_slices"):
        with user_arrays.unchanged():
            tf.data.Dataset.from_tensor_slices(array)
            array[0] = 1
