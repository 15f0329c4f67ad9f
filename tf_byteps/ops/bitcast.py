"""Tensors of dtypes that servers cannot add up, as tensors of one that they can.

For exchanges that only copy. Each dtype has a form of its own, with one more axis, so that workers
whose dtypes differ are told, as they are of other differences.
"""

# TensorFlow's types know no Ellipsis in an index.
# pyright: reportArgumentType=false

import tensorflow as tf

# dtype -> one of the same bits, in parts along a last axis.
_PARTS = {tf.int16: tf.int8, tf.uint16: tf.uint8, tf.uint32: tf.uint8, tf.uint64: tf.uint8}
_OF_COMPLEX = (tf.complex64, tf.complex128)

#: What `encode` turns into another dtype.
DTYPES = (tf.bool, *_PARTS, *_OF_COMPLEX)


def encode(value: tf.Tensor) -> tf.Tensor:
    """What is exchanged for a tensor: the tensor itself, or one with one more axis.

    Args:
        value: a `tf.Tensor` of any dtype.

    Returns:
        A `tf.Tensor`. Gradients flow through it where the dtype has any.
    """
    if value.dtype == tf.bool:
        return tf.cast(value, tf.uint8)[..., tf.newaxis]
    if value.dtype in _OF_COMPLEX:
        return tf.stack([tf.math.real(value), tf.math.imag(value)], -1)
    return tf.bitcast(value, _PARTS[value.dtype]) if value.dtype in _PARTS else value


def decode(value: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The tensor of type `dtype` that `encode` was given."""
    if dtype == tf.bool:
        return tf.cast(value[..., 0], tf.bool)
    if dtype in _OF_COMPLEX:
        return tf.complex(value[..., 0], value[..., 1])
    return tf.bitcast(value, dtype) if dtype in _PARTS else value
