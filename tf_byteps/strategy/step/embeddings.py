"""Looks up rows of an embedding without a copy of its table.

Keras reads the whole table and takes rows of what it has read. Once an optimizer has updated single
rows, TensorFlow copies a table for each such read. A table of 500,000 × 64 costs 400 ms so.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tf_byteps.gradients.replica import in_our_replica
from tf_byteps.private.keras import AutocastScope


def look_up(
    original: Callable[..., tf.Tensor], self: keras.layers.Embedding, inputs: tf.Tensor
) -> tf.Tensor:
    """Replaces `keras.layers.Embedding.call` in the steps of a strategy: the same numbers.

    For mixed precision rows are cast, and not the table. A table that is quantized or has a LoRA
    part, and inputs that are not dense, are left to Keras.
    """
    table: Any = self.embeddings
    if not (in_our_replica() and _is_plain(table, inputs)):
        return original(self, inputs)
    with AutocastScope(None):
        weights = table.value
    indices = inputs if inputs.dtype in (tf.int32, tf.int64) else tf.cast(inputs, tf.int32)
    rows = tf.constant(table.shape[0], indices.dtype)
    taken = tf.gather(weights, tf.where(indices < 0, indices + rows, indices))
    return tf.cast(taken, self.compute_dtype)


def _is_plain(table: object, inputs: object) -> bool:
    return isinstance(table, keras.Variable) and isinstance(inputs, tf.Tensor)
