"""What `tf.distribute` means by reducing and gathering, made of exchanges."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.exchange.reduce_op import Average, Sum
from tf_byteps.ops import broadcast, gather, names, push_pull
from tf_byteps.strategy.step import forward_exchanges, local_batch
from tf_byteps.types import ExchangeInput

_OPS = {tf.distribute.ReduceOp.SUM: Sum, tf.distribute.ReduceOp.MEAN: Average}


def reduce(reduce_op: tf.distribute.ReduceOp, value: ExchangeInput, kind: str) -> Any:
    """Reduces a tensor over all workers. A worker whose batch is empty contributes zeros.

    Args:
        reduce_op: `tf.distribute.ReduceOp.SUM` or `MEAN`, or its name.
        value: a `tf.Tensor`, what converts to one, or `tf.IndexedSlices`. A mean of integers is a
            mean of their float64 values, as with TensorFlow's own strategies.
        kind: what the reduction is for, a part of the exchange's name.

    Returns:
        A `tf.Tensor` or `tf.IndexedSlices`.
    """
    if isinstance(reduce_op, str):
        reduce_op = tf.distribute.ReduceOp(reduce_op.upper())
    op = _OPS[reduce_op]
    if isinstance(value, tf.IndexedSlices):
        name = names.unnamed(f"{kind} of rows")
    else:
        value = tf.convert_to_tensor(value)
        if op == Average and value.dtype.is_integer:
            value = tf.cast(value, tf.float64)
        name = names.unnamed(kind)

    def exchange(tensor: tf.Tensor) -> Any:
        return push_pull(tensor, name=name, op=op)

    contribution = local_batch.contribution(value)
    if isinstance(value, tf.IndexedSlices):
        return exchange(contribution)
    return forward_exchanges.exchanged(exchange, contribution)


def from_first_replica(value: ExchangeInput, kind: str) -> Any:
    """Replica 0's value, on every worker.

    Args:
        value: a `tf.Tensor`, or `tf.IndexedSlices`, whose rows may differ between the workers.
        kind: see `reduce`.

    Returns:
        The same kind and dtype.
    """
    if not isinstance(value, tf.IndexedSlices):
        return broadcast(value, 0, name=names.unnamed(kind), gradient="sum")
    name = names.unnamed(f"{kind} of rows")
    own = slice(None) if runtime.rank() == 0 else slice(0)
    values = gather(value.values[own], f"{name}/values", gradient="sum")
    return tf.IndexedSlices(
        values, gather(value.indices[own], f"{name}/indices"), value.dense_shape
    )


def gather_along(value: ExchangeInput, axis: int) -> Any:
    """Concatenates the workers' tensors along any axis.

    Args:
        value: a `tf.Tensor` of rank 1 or more.
        axis: an integer; a negative one counts from the last axis.

    Returns:
        A tensor of the same rank and dtype.

    Raises:
        ValueError: the tensor has no such axis.
    """
    value = tf.convert_to_tensor(value)
    rank = value.shape.rank
    if rank == 0:
        raise ValueError("a scalar cannot be gathered: it has no axis to concatenate along")
    if not -rank <= axis < rank:
        raise ValueError(f"a tensor of shape {value.shape} cannot be gathered along axis {axis}")
    axis %= rank
    if axis == 0:
        gathered = forward_exchanges.exchanged(_gather, forward_exchanges.rows_of_piece(value))
        return forward_exchanges.with_padding_rows(gathered, value)
    order = [axis, *(other for other in range(rank) if other != axis)]
    gathered = forward_exchanges.exchanged(_gather, tf.transpose(value, order))
    return tf.transpose(gathered, [order.index(position) for position in range(rank)])


def _gather(value: ExchangeInput) -> Any:
    return gather(value, gradient="sum")
