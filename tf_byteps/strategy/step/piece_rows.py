"""The rows of a worker's piece of a batch, and what stands in for a piece that has none."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_byteps.ops import compiling


def rows_of(data: object) -> Any:
    """Rows of this worker's piece: an int64 scalar, and an integer if it is known (or `None`)."""
    for tensor in tf.nest.flatten(data):
        if isinstance(tensor, tf.RaggedTensor):
            return tf.cast(tensor.nrows(), tf.int64), None
        if isinstance(tensor, tf.SparseTensor):
            # No view: what is computed from it could be written to the program's own array.
            return tf.gather(tensor.dense_shape, 0), None
        if tensor is not None and not isinstance(tensor, tf.experimental.Optional):
            tensor = tf.convert_to_tensor(tensor)
            return tf.shape(tensor, out_type=tf.int64)[0], tensor.shape[0]
    raise ValueError("the batch holds no tensor")


def without_emptiness(data: object, is_empty: tf.Tensor | None) -> Any:
    """`data`, or one row of zeros in its place."""
    parts = tf.nest.flatten(data)
    places = [place for place, part in enumerate(parts) if _is_dense(part)]
    dense = [tf.convert_to_tensor(parts[place]) for place in places]
    for place, tensor, padded in zip(places, dense, _padded(dense, is_empty), strict=True):
        parts[place] = tf.ensure_shape(padded, [None, *tensor.shape[1:]])
    return tf.nest.pack_sequence_as(data, parts)


def _padded(tensors: list[tf.Tensor], is_empty: tf.Tensor | None) -> Any:
    """The tensors, each with one row of zeros if they have no rows."""
    if compiling.is_compiled():
        return [_with_a_row(tensor) for tensor in tensors]
    if not tensors:
        return []
    # One branch for all: each takes tens of milliseconds to trace.
    return tf.cond(
        is_empty,
        lambda: [_row_of_zeros(tensor) for tensor in tensors],
        lambda: [tf.identity(tensor) for tensor in tensors],
    )


def _is_dense(part: object) -> bool:
    others = (tf.RaggedTensor, tf.SparseTensor, tf.experimental.Optional)
    return part is not None and not isinstance(part, others)


def _row_of_zeros(tensor: tf.Tensor) -> Any:
    return tf.zeros(tf.concat([[1], tf.shape(tensor)[1:]], 0), tensor.dtype)


def _with_a_row(tensor: tf.Tensor) -> Any:
    """A branch that has another shape would have an unknown one, which few operations take."""
    missing = 1 - tf.minimum(tf.shape(tensor)[0], 1)
    paddings: Any = [[0, missing], *[[0, 0]] * (tensor.shape.rank - 1)]
    return tf.pad(tensor, paddings)
