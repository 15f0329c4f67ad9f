"""Reductions that are started in one step and waited for in another.

`push_pull` ends with its result, so that a traced function that calls it does not end before. Here
the first operation only hands the tensor to the engine, and the second, in the same function or in
one that runs later, has the sum.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tf_byteps import _engine
from tf_byteps.ops import slices
from tf_byteps.ops.arguments import forward_order_at
from tf_byteps.ops.compression import Compression
from tf_byteps.ops.library import kernels, token
from tf_byteps.ops.reduce_op import Average, ReduceOp
from tf_byteps.ops.reduction import Reduction, declaration


@dataclasses.dataclass(frozen=True)
class StartedReduction:
    """A sum or an average that is under way. Two that are equal can be waited for alike.

    Attributes:
        name: of the exchange.
        dtype: a `tf.DType`.
        shape: the tensor's, a tuple of integers.
        op: `Sum` or `Average`.
        index_dtype: of the indices of `tf.IndexedSlices`, a `tf.DType`; `None` for a tensor.
        merges_rows: see `slices.reduce_rows`.
    """

    name: str
    dtype: tf.DType
    shape: tuple
    op: ReduceOp
    index_dtype: tf.DType | None = None
    merges_rows: bool = True

    def wait(self) -> tf.Tensor | tf.IndexedSlices:
        """The result, once: a `tf.Tensor` or `tf.IndexedSlices`, as `push_pull` returns it."""
        is_sparse = self.index_dtype is not None
        result = kernels().byte_ps_wait(
            token(self.name),
            T=self.dtype,
            tensor_name=self.name,
            shape=[None, None] if is_sparse else self.shape,
        )
        if self.index_dtype is None:
            return result
        dense_shape = tf.constant(self.shape, self.index_dtype)
        return slices.unpack(
            result,
            slices.Form(
                dense_shape[1:], self.shape[1:], self.index_dtype, dense_shape, self.merges_rows
            ),
            average=self.op == Average,
        )


def start_reductions(
    tensors: Sequence[Any],
    names: Sequence[str],
    shapes: Sequence[tuple[int, ...]],
    reduction: Reduction,
) -> list[StartedReduction | None]:
    """Starts reductions over all workers. None waits for another.

    They are announced in one message, so that placing them costs one round trip.

    Args:
        tensors: a list of what `Reduction.prepare` returned, or `None`; with `tf.IndexedSlices` the
            width of the rows is the shape's.
        names: those of the exchanges, in the order in which the forward pass needs their results.
        shapes: the static shapes of the (dense) tensors, tuples of integers.
        reduction: the `Reduction` whose `prepare` it was, of which nothing but the operation and
            what becomes of repeated rows is used.

    Returns:
        A list of `StartedReduction`; `None` stays.
    """
    dense = [each for each in zip(tensors, names, strict=True) if isinstance(each[0], tf.Tensor)]
    _engine.declare([declaration(tensor, name, reduction.op) for tensor, name in dense])
    return [
        None
        if tensor is None
        else _start(tensor, name, tuple(shape), reduction, forward_order_at(position))
        for position, (tensor, name, shape) in enumerate(zip(tensors, names, shapes, strict=True))
    ]


def _start(
    tensor: Any, name: str, shape: tuple[int, ...], reduction: Reduction, priority: int
) -> StartedReduction:
    if not isinstance(tensor, tf.IndexedSlices):
        tensor = tf.ensure_shape(tensor, shape)
        kernels().byte_ps_push_pull_start(
            token(name), tensor, tensor_name=name, op=str(reduction.op), priority=priority
        )
        return StartedReduction(name, tensor.dtype, shape, reduction.op)
    name = f"{name}/rows"
    merges = reduction.merge_repeated_rows
    packed, _ = slices.pack(tensor, Compression.none, merges)
    kernels().byte_ps_gather_start(token(name), packed, tensor_name=name, priority=priority)
    return StartedReduction(name, packed.dtype, shape, reduction.op, tensor.indices.dtype, merges)


def forget(names: Iterable[str]) -> None:
    """Gives up the results of reductions that were started and that nobody has waited for.

    The other workers get theirs all the same.

    Args:
        names: those of the exchanges; of some nothing may be under way.
    """
    kernels().byte_ps_forget(tensor_names=list(names))


def starts_and_waits() -> int:
    """How many reductions this process has started, or asked for their results, so far."""
    return int(kernels().byte_ps_starts_and_waits())
