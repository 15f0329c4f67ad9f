"""Exchanges within a step, between forward passes: SyncBN's, and what a program gathers itself."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.ops import compiling
from tf_byteps.ops.custom_gradients import custom_gradient
from tf_byteps.strategy.step.local_batch import current


def exchanged(exchange: Callable[..., Any], tensor: tf.Tensor) -> Any:
    """An exchange within a step, between forward passes.

    Where a worker's loss depends on the others' rows, its gradient comes to them with the weight
    that its rows have, not with theirs.

    Args:
        exchange: a function of a tensor, whose gradient is the sum of the workers' gradients.
        tensor: a `tf.Tensor`; of an empty piece nothing may be left in it.

    Returns:
        What the function returns.
    """
    batch = current()
    if batch is None or not tensor.dtype.is_floating:
        return exchange(tensor)
    share = tf.cast(batch.relative_share, tensor.dtype)

    @custom_gradient
    def sent(value: tf.Tensor) -> Any:
        return tf.identity(value), lambda gradient: tf.math.divide_no_nan(gradient, share)

    @custom_gradient
    def received(value: tf.Tensor) -> Any:
        return tf.identity(value), lambda gradient: tf.math.multiply_no_nan(gradient, share)

    return received(exchange(sent(tensor)))


def rows_of_piece(tensor: tf.Tensor) -> Any:
    """A tensor with the rows of the piece: none if it is empty, instead of the padding row."""
    batch = current()
    if batch is None or batch.is_empty is None or compiling.is_compiled():
        return tensor
    kept = tf.cond(batch.is_empty, lambda: tensor[:0], lambda: tf.identity(tensor))
    return tf.ensure_shape(kept, [None, *tensor.shape[1:]])


def with_padding_rows(gathered: tf.Tensor, value: tf.Tensor) -> Any:
    """What a gather along rows shows to the program.

    On a worker whose piece is empty the program goes on with one padding row, and may look for it
    among all rows. So copies of it follow the others' rows there, one for each worker that may be
    empty, too; nothing that is computed from them counts.

    Args:
        gathered: the rows of all pieces.
        value: what this worker's program has gathered.

    Returns:
        A tensor of the same rank and dtype.
    """
    batch = current()
    if batch is None or batch.is_empty is None or compiling.is_compiled():
        return gathered

    def padded() -> Any:
        return tf.concat([gathered, *[value] * runtime.size()], 0)

    shown = tf.cond(batch.is_empty, padded, lambda: tf.identity(gathered))
    return tf.ensure_shape(shown, [None, *gathered.shape[1:]])
