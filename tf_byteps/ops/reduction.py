"""What `push_pull` and the gradients' reductions have in common."""

import tensorflow as tf

from tf_byteps import _engine
from tf_byteps.ops import reduce_op, slices
from tf_byteps.ops.arguments import checked_tensor
from tf_byteps.ops.compression import Compression
from tf_byteps.ops.library import kernels, token


class Reduction:
    """How tensors are combined: the operation, and what happens before and after the exchange.

    Args:
        op: a `ReduceOp`.
        compression: see `push_pull`.
        prescale_factor: see `push_pull`.
        postscale_factor: see `push_pull`.
        sparse_as_dense: see `push_pull`.
    """

    def __init__(
        self,
        op,
        compression=Compression.none,
        prescale_factor=1.0,
        postscale_factor=1.0,
        sparse_as_dense=False,
    ):
        self.op = op
        self.compression = Compression.none if compression is None else compression
        self.prescale_factor = prescale_factor
        self.postscale_factor = postscale_factor
        self.sparse_as_dense = sparse_as_dense

    def prepare(self, tensor):
        """A tensor to exchange, checked: a `tf.Tensor` or `tf.IndexedSlices`."""
        if isinstance(tensor, tf.IndexedSlices) and self.sparse_as_dense:
            tensor = tf.convert_to_tensor(tensor)
        if isinstance(tensor, tf.IndexedSlices):
            if self.op not in (reduce_op.Sum, reduce_op.Average):
                raise ValueError(
                    f"op {str(self.op)!r} does not exist for tf.IndexedSlices: use 'sum' or "
                    "'average', or sparse_as_dense=True"
                )
            dtype = checked_tensor(tensor.values, "push_pull").dtype
        else:
            tensor = checked_tensor(tensor, "push_pull")
            dtype = tensor.dtype
        if self.op == reduce_op.Average and not dtype.is_floating:
            raise ValueError(
                f"an average of {dtype.name} is not exact: pass op=tf_byteps.Sum and divide, or "
                "cast to a floating dtype"
            )
        return tensor

    def exchange_all(self, tensors, tensor_names, priority=0):
        """Exchanges prepared tensors, the first with the highest priority.

        Those of a traced function are announced in one message, so that placing them costs one
        round trip.

        Args:
            tensors: a list of what `prepare` returned, or `None`.
            tensor_names: their names.
            priority: the first one's priority.

        Returns:
            The list of results; `None` stays.
        """
        if not tf.executing_eagerly():
            _engine.declare(
                [
                    self._declaration(tensor, name)
                    for tensor, name in zip(tensors, tensor_names, strict=True)
                    if isinstance(tensor, tf.Tensor) and tensor.shape.is_fully_defined()
                ]
            )
        return [
            None if tensor is None else self.exchange(tensor, name, priority - index)
            for index, (tensor, name) in enumerate(zip(tensors, tensor_names, strict=True))
        ]

    def exchange(self, tensor, name, priority=0):
        """Exchanges what `prepare` returned."""
        if isinstance(tensor, tf.IndexedSlices):
            return self._exchange_slices(tensor, name, priority)
        sent, context = self.compression.compress(_scaled(tensor, self.prescale_factor))
        result = kernels().byte_ps_push_pull(
            token(name), sent, tensor_name=name, op=str(self.op), priority=priority
        )
        return _scaled(self.compression.decompress(result, context), self.postscale_factor)

    def _exchange_slices(self, tensor, name, priority):
        name = f"{name}/rows"

        def scaled(rows, factor):
            return tf.IndexedSlices(_scaled(rows.values, factor), rows.indices, rows.dense_shape)

        def gather(rows):
            return kernels().byte_ps_gather(token(name), rows, tensor_name=name, priority=priority)

        result = slices.reduce_rows(
            scaled(tensor, self.prescale_factor),
            gather,
            average=self.op == reduce_op.Average,
            compression=self.compression,
        )
        return scaled(result, self.postscale_factor)

    def _declaration(self, tensor, name):
        average = self.op == reduce_op.Average
        kind = str(reduce_op.Sum if average else self.op)
        sent, _ = self.compression.compress(tensor)
        return (name, sent.dtype.name, sent.shape.as_list(), kind, average, 0)


def _scaled(tensor, factor):
    """`tensor * factor`; for 16-bit floats in float32, so that the factor is not rounded."""
    if isinstance(factor, (int, float)) and factor == 1:
        return tensor
    if not tensor.dtype.is_floating:
        raise ValueError(
            f"a tensor of dtype {tensor.dtype.name} cannot be scaled by {factor}: cast it to a "
            "floating dtype"
        )
    wide = tf.float32 if tensor.dtype.size < tf.float32.size else tensor.dtype
    return tf.cast(tf.cast(tensor, wide) * tf.cast(factor, wide), tensor.dtype)
