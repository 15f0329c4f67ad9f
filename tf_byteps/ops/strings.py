"""Tensors of strings as tensors of numbers, for exchanges that copy."""

from typing import Any

import tensorflow as tf

from tf_byteps.ops import compiling


def to_bytes(strings: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Splits strings into what can be exchanged.

    Args:
        strings: a `tf.Tensor` of dtype string, of any shape.

    Returns:
        The lengths, an int32 tensor with one more axis, so that a worker with strings and one with
        integers are told; and all bytes, a uint8 vector.
    """
    if compiling.is_compiled():
        raise TypeError(
            "cannot exchange a tensor of dtype string; supported are numbers, in a function "
            "that XLA compiles: exchange strings outside of it, or compile with jit_compile=False"
        )
    with tf.device("CPU"):
        joined = tf.strings.reduce_join(tf.reshape(strings, [-1]))
        lengths = tf.strings.length(strings)[..., tf.newaxis]
        return lengths, tf.io.decode_raw(joined, tf.uint8)


def from_bytes(lengths: tf.Tensor, data: tf.Tensor) -> tf.Tensor:
    """The strings that `to_bytes` was given."""
    with tf.device("CPU"):
        alphabet = tf.constant([bytes([number]) for number in range(256)])
        letters = tf.gather(alphabet, tf.cast(data, tf.int32))
        # TensorFlow's types lack this method.
        ragged: Any = tf.RaggedTensor
        rows = ragged.from_row_lengths(letters, tf.reshape(lengths, [-1]))
        return tf.reshape(tf.strings.reduce_join(rows, axis=1), tf.shape(lengths)[:-1])
