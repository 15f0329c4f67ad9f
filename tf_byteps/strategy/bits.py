"""Tensors of types that are not exchanged, as tensors of one that is.

For exchanges that only copy.
"""

import tensorflow as tf

# Exchanged as another type of the same width.
_SAME_WIDTH = {
    tf.uint16: tf.float16,
    tf.int16: tf.float16,
    tf.uint32: tf.int32,
    tf.uint64: tf.int64,
    tf.complex64: tf.int64,
}


def encode(value):
    """What is exchanged for `value`, a tensor of the same shape."""
    if value.dtype == tf.bool:
        return tf.cast(value, tf.uint8)
    return tf.bitcast(value, _SAME_WIDTH[value.dtype]) if value.dtype in _SAME_WIDTH else value


def decode(value, dtype):
    """The tensor of type `dtype` that `encode` was given."""
    if dtype == tf.bool:
        return tf.cast(value, tf.bool)
    return value if value.dtype == dtype else tf.bitcast(value, dtype)
