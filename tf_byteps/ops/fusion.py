"""Reduces many small tensors in one exchange."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_byteps.ops import ReduceOp, push_pull


def reduce_fused(
    tensors: Sequence[Any], dtype: tf.DType, op: ReduceOp | str, name: str
) -> list[tf.Tensor]:
    """The reductions of tensors over all workers. A collective.

    Args:
        tensors: a list of `tf.Tensor` or `tf.Variable`, with the same shapes on all workers.
        dtype: in which they are exchanged.
        op: see `push_pull`.
        name: of the exchange.

    Returns:
        A list of `tf.Tensor` of the given ones' shapes and dtypes.
    """
    joined = tf.concat([tf.reshape(tf.cast(tensor, dtype), [-1]) for tensor in tensors], 0)
    reduced = push_pull(joined, op=op, name=name)
    parts = tf.split(reduced, [tensor.shape.num_elements() for tensor in tensors])
    return [
        tf.cast(tf.reshape(part, tensor.shape), tensor.dtype)
        for tensor, part in zip(tensors, parts, strict=True)
    ]
