"""Numbers that tensors are multiplied by."""

import tensorflow as tf


def factor_of(number: float | tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """A number in the dtype of what it multiplies.

    `tf.cast` makes a float32 of a Python number first: in float64, its eighth digit would differ.

    Args:
        number: a Python number, or a scalar tensor.
        dtype: a floating dtype.

    Returns:
        A scalar tensor.
    """
    return tf.cast(number, dtype) if tf.is_tensor(number) else tf.constant(number, dtype)
