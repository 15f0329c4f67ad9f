"""Sums that are started in one step and waited for in another.

`push_pull` ends with its result, so that a traced function that calls it does not end before. Here
the first operation only hands the tensor to the engine, and the second, in the same function or in
one that runs later, has the sum.
"""

import dataclasses

import tensorflow as tf

from tf_byteps import _engine
from tf_byteps.ops import slices
from tf_byteps.ops.arguments import forward_order_at
from tf_byteps.ops.compression import Compression
from tf_byteps.ops.library import kernels, token
from tf_byteps.ops.reduce_op import Sum
from tf_byteps.ops.reduction import declaration


@dataclasses.dataclass(frozen=True)
class StartedSum:
    """A sum over all workers that is under way. Two that are equal can be waited for alike.

    Attributes:
        name: of the exchange.
        dtype: a `tf.DType`.
        shape: the tensor's, a tuple of integers.
        index_dtype: of the indices of `tf.IndexedSlices`, a `tf.DType`; `None` for a tensor.
    """

    name: str
    dtype: tf.DType
    shape: tuple
    index_dtype: tf.DType | None = None

    def wait(self):
        """The sum, once: a `tf.Tensor` or `tf.IndexedSlices`, as `push_pull` returns it."""
        is_sparse = self.index_dtype is not None
        result = kernels().byte_ps_wait(
            token(self.name),
            T=self.dtype,
            tensor_name=self.name,
            shape=[None, None] if is_sparse else self.shape,
        )
        if not is_sparse:
            return result
        dense_shape = tf.constant(self.shape, self.index_dtype)
        return slices.unpack(
            result,
            slices.Form(dense_shape[1:], self.shape[1:], self.index_dtype, dense_shape),
        )


def start_sums(tensors, names, shapes):
    """Starts sums over all workers. None waits for another.

    They are announced in one message, so that placing them costs one round trip.

    Args:
        tensors: a list of what `Reduction.prepare` returned, or `None`; with `tf.IndexedSlices` the
            width of the rows is the shape's.
        names: those of the exchanges, in the order in which the forward pass needs their results.
        shapes: the static shapes of the (dense) tensors, tuples of integers.

    Returns:
        A list of `StartedSum`; `None` stays.
    """
    dense = [each for each in zip(tensors, names, strict=True) if isinstance(each[0], tf.Tensor)]
    _engine.declare([declaration(tensor, name, Sum) for tensor, name in dense])
    return [
        None if tensor is None else _start(tensor, name, tuple(shape), forward_order_at(position))
        for position, (tensor, name, shape) in enumerate(zip(tensors, names, shapes, strict=True))
    ]


def _start(tensor, name, shape, priority):
    if not isinstance(tensor, tf.IndexedSlices):
        tensor = tf.ensure_shape(tensor, shape)
        kernels().byte_ps_push_pull_start(
            token(name), tensor, tensor_name=name, op=str(Sum), priority=priority
        )
        return StartedSum(name, tensor.dtype, shape)
    name = f"{name}/rows"
    packed, _ = slices.pack(tensor, Compression.none)
    kernels().byte_ps_gather_start(token(name), packed, tensor_name=name, priority=priority)
    return StartedSum(name, packed.dtype, shape, tensor.indices.dtype)


def forget(names):
    """Gives up the results of sums that were started and that nobody has waited for.

    The other workers get theirs all the same.

    Args:
        names: those of the exchanges; of some nothing may be under way.
    """
    kernels().byte_ps_forget(tensor_names=list(names))
