"""Horovod's names for the exchanges, with its order of arguments."""

import dataclasses
from collections.abc import Iterable
from typing import Any, overload

import tensorflow as tf

from tf_byteps.exchange.compression import AnyCompressor
from tf_byteps.exchange.process_sets import ProcessSet, scope_of
from tf_byteps.exchange.reduce_op import ReduceOp
from tf_byteps.ops import Compression, batching, broadcast, gather, names, push_pull


@overload
def allreduce(
    tensor: tf.IndexedSlices,
    average: bool | None = ...,
    device_dense: str = ...,
    device_sparse: str = ...,
    compression: AnyCompressor = ...,
    op: ReduceOp | str | None = ...,
    prescale_factor: float = ...,
    postscale_factor: float = ...,
    name: str | None = ...,
    process_set: ProcessSet | None = ...,
) -> tf.IndexedSlices: ...
@overload
def allreduce(
    tensor: list[Any] | tuple[Any, ...],
    average: bool | None = ...,
    device_dense: str = ...,
    device_sparse: str = ...,
    compression: AnyCompressor = ...,
    op: ReduceOp | str | None = ...,
    prescale_factor: float = ...,
    postscale_factor: float = ...,
    name: str | None = ...,
    process_set: ProcessSet | None = ...,
) -> list[Any]: ...
@overload
def allreduce(
    tensor: Any,
    average: bool | None = ...,
    device_dense: str = ...,
    device_sparse: str = ...,
    compression: AnyCompressor = ...,
    op: ReduceOp | str | None = ...,
    prescale_factor: float = ...,
    postscale_factor: float = ...,
    name: str | None = ...,
    process_set: ProcessSet | None = ...,
) -> tf.Tensor: ...
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: AnyCompressor = Compression.none,
    op: ReduceOp | str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet | None = None,
) -> Any:
    """`push_pull` under Horovod's name and with its order of arguments.

    Args:
        tensor: see `push_pull`.
        average: see `push_pull`.
        device_dense: see `push_pull`.
        device_sparse: see `push_pull`.
        compression: see `push_pull`.
        op: see `push_pull`.
        prescale_factor: see `push_pull`.
        postscale_factor: see `push_pull`.
        name: see `push_pull`.
        process_set: see `push_pull`.

    Returns:
        See `push_pull`.

    Raises:
        See `push_pull`.

    Example:

    >>> tf_byteps.allreduce(tf.constant([1.0, 2.0]), op=tf_byteps.Sum, name="loss")
    """
    del device_dense, device_sparse
    return push_pull(
        tensor,
        average=average,
        compression=compression,
        op=op,
        name=name,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=process_set,
    )


def grouped_allreduce(tensors: Iterable[Any], *args: Any, **kwargs: Any) -> list[Any]:
    """`allreduce` of a list of tensors.

    Unlike Horovod's it is no all-or-nothing group: each tensor is exchanged as soon as it is there,
    and its result does not wait for the others'.

    Args:
        tensors: a list of what `allreduce` takes.
        *args: see `allreduce`.
        **kwargs: see `allreduce`.

    Returns:
        The list of results.

    Raises:
        See `allreduce`.

    Example:

    >>> tf_byteps.grouped_allreduce([tf.ones([2]), tf.zeros([3])], op=tf_byteps.Sum, name="pair")
    """
    return allreduce(list(tensors), *args, **kwargs)


def grouped_allgather(
    tensors: Iterable[Any],
    name: str | None = None,
    gradient: str = "average",
    process_set: ProcessSet | None = None,
) -> list[tf.Tensor]:
    """`allgather` of a list of tensors.

    Args:
        tensors: a list of tensors of shape `[rows, ...]`; `rows` may differ between the workers.
        name: a string, the same on all workers. Default: derived from the place of the call.
        gradient: see `allgather`.
        process_set: see `allgather`.

    Returns:
        The list of tensors of shape `[rows of all workers, ...]`.

    Raises:
        See `allgather`.

    Example:

    >>> tf_byteps.grouped_allgather([tf.ones([2, 3]), tf.zeros([1])], name="pair")
    """
    prefix = name or names.unnamed("grouped_allgather", scope_of(process_set))
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    indices = range(len(tensors))
    group = _Gathers(tuple(f"{prefix}/{index}" for index in indices), gradient, process_set)
    return batching.run(group, tensors)


@dataclasses.dataclass(frozen=True)
class _Gathers:
    names: tuple
    gradient: str
    process_set: ProcessSet | None

    def __call__(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        pairs = zip(tensors, self.names, strict=True)
        return [
            gather(tensor, name, gradient=self.gradient, process_set=self.process_set)
            for tensor, name in pairs
        ]


def broadcast_(
    variables: Iterable[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet | None = None,
) -> list[Any]:
    """Sets variables to the root's values, in place.

    Args:
        variables: a list of `tf.Variable` or `keras.Variable`, in the same order on all workers.
        root_rank: an integer, the rank of the worker whose values count.
        name: a string, the same on all workers. Default: derived from the place of the call.
        process_set: see `broadcast`.

    Returns:
        The list of the variables.

    Raises:
        ValueError: see `broadcast`.
        tf.errors.FailedPreconditionError: the workers' variables differ in shape or dtype.

    Example:

    >>> tf_byteps.broadcast_(model.trainable_variables, root_rank=0)
    """
    variables = list(variables)
    workers = scope_of(process_set)
    prefix = name or f"broadcast_@{names.call_site()}"
    for index, variable in enumerate(variables):
        value = tf.convert_to_tensor(variable)
        its_name = names.numbered(f"{prefix}/{index}", workers)
        value = broadcast(value, root_rank, name=its_name, process_set=process_set)
        variable.assign(value)
    return variables
