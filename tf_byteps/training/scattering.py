"""Horovod's names for reductions of which each worker gets its own rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tf_byteps.exchange.compression import AnyCompressor
from tf_byteps.exchange.process_sets import ProcessSet, scope_of
from tf_byteps.exchange.reduce_op import Average, ReduceOp
from tf_byteps.ops import Compression, names, push_pull
from tf_byteps.ops.arguments import checked_tensor, names_for
from tf_byteps.ops.process_sets import rank_in, size_in
from tf_byteps.ops.refusals import reported_to_the_others
from tf_byteps.ops.scattering import refuse_compiled
from tf_byteps.types import TensorLike


def reducescatter(
    tensor: TensorLike,
    device_dense: str = "",
    compression: AnyCompressor = Compression.none,
    op: ReduceOp | str = Average,
    name: str | None = None,
    process_set: ProcessSet | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """Combines a tensor elementwise over all workers; each gets its own rows of the result.

    It is a `push_pull` of which a worker keeps its rows: a name for programs that have it, and no
    saving. A worker sends and receives the whole tensor.

    Args:
        tensor: a `tf.Tensor` of shape `[rows, ...]`, the same on all workers. Dtypes as for
            `push_pull`.
        device_dense: see `push_pull`.
        compression: see `push_pull`.
        op: see `push_pull`.
        name: see `push_pull`.
        process_set: see `push_pull`. The rows are split among its workers.
        prescale_factor: see `push_pull`.
        postscale_factor: see `push_pull`.

    Returns:
        A tensor of shape `[own rows, ...]` and the same dtype. The first worker has the first rows;
        if `rows` is no multiple of `size()`, the first workers have one row more.

        Gradients are those of the sum of the workers' losses, and for an average their average.

    Raises:
        ValueError: the tensor is a scalar; and see `push_pull`.
        NotImplementedError: it is called in a function that XLA compiles.
        TypeError: see `push_pull`; and `tf.IndexedSlices`.
        tf.errors.FailedPreconditionError: see `push_pull`.

    Example:

    >>> own = tf_byteps.reducescatter(tf.ones([tf_byteps.size(), 8]), op=tf_byteps.Sum, name="x")
    """
    workers = scope_of(process_set)
    checked = _checked_rows(tensor, name, process_set)
    reduced = push_pull(
        checked,
        device_dense=device_dense,
        compression=compression,
        op=op,
        name=names.unnamed("reducescatter", workers) if name is None else name,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=process_set,
    )
    return _own_rows(reduced, workers)


def grouped_reducescatter(
    tensors: Iterable[TensorLike],
    device_dense: str = "",
    compression: AnyCompressor = Compression.none,
    op: ReduceOp | str = Average,
    process_set: ProcessSet | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> list[tf.Tensor]:
    """`reducescatter` of a list of tensors; none waits for the others.

    Args:
        tensors: a list of tensors of shape `[rows, ...]`, the same on all workers.
        device_dense: see `push_pull`.
        compression: see `push_pull`.
        op: see `push_pull`.
        process_set: see `push_pull`. The rows are split among its workers.
        prescale_factor: see `push_pull`.
        postscale_factor: see `push_pull`.
        name: a string, the same on all workers. Default: derived from the place of the call.

    Returns:
        The list of tensors of shape `[own rows, ...]`: see `reducescatter`.

    Raises:
        See `reducescatter`.

    Example:

    >>> tf_byteps.grouped_reducescatter([tf.ones([4]), tf.zeros([2, 3])], name="pair")
    """
    workers = scope_of(process_set)
    name = name or names.unnamed("grouped_reducescatter", workers)
    reduced = push_pull(
        [
            _checked_rows(tensor, f"{name}/{index}", process_set)
            for index, tensor in enumerate(tensors)
        ],
        device_dense=device_dense,
        compression=compression,
        op=op,
        name=name,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=process_set,
    )
    return [_own_rows(each, workers) for each in reduced]


# What `push_pull` refuses it reports itself.
@reported_to_the_others(names_for("reducescatter"))
def _checked_rows(
    tensor: TensorLike, name: str | None, process_set: ProcessSet | None
) -> tf.Tensor:
    del name, process_set
    if isinstance(tensor, tf.IndexedSlices):
        raise TypeError("reducescatter takes dense tensors, got tf.IndexedSlices")
    checked = checked_tensor(tensor, "reducescatter")
    if checked.shape.rank == 0:
        raise ValueError("a scalar has no rows to scatter: reshape it to [1]")
    refuse_compiled("reducescatter")
    return checked


def _own_rows(reduced: tf.Tensor, workers: str) -> Any:
    rank, size = rank_in(f"{workers}/"), size_in(f"{workers}/")
    rows = tf.shape(reduced)[0]
    least, more = rows // size, rows % size
    begin = rank * least + tf.minimum(rank, more)
    return reduced[begin : begin + least + tf.cast(rank < more, tf.int32)]
