"""`push_pull`, eager and within `tf.function`."""

from typing import Any, overload

import tensorflow as tf

from tf_byteps.exchange import reduce_op
from tf_byteps.exchange.arguments import checked_priority
from tf_byteps.exchange.compression import (
    AnyCompressor,
    Compression,
    resolve as resolve_compression,
)
from tf_byteps.exchange.names import checked
from tf_byteps.exchange.process_sets import ProcessSet, scope_of
from tf_byteps.exchange.reduce_op import ReduceOp, Sum
from tf_byteps.ops import (
    gradients as _gradients,  # noqa: F401  (registers them)
    names,
    store,
)
from tf_byteps.ops.error_text import in_plain_words
from tf_byteps.ops.reduction import Reduction
from tf_byteps.ops.refusals import reported_to_the_others
from tf_byteps.types import ExchangeInput


def _names_of(
    tensor: ExchangeInput, scope: str, name: str | None, process_set: ProcessSet | None, **_: object
) -> list[str]:
    """Of what `push_pull` sends, whatever else it is called with."""
    tensors = tensor if isinstance(tensor, (list, tuple)) else [tensor]
    workers = scope_of(process_set)
    found = [_push_pull_name(scope, name, each, workers) for each in tensors]
    if tensors is tensor:
        found = [f"{each}/{index}" for index, each in enumerate(found)]
    return [
        f"{its}/rows" if isinstance(each, tf.IndexedSlices) else its
        for each, its in zip(tensors, found, strict=True)
    ]


@overload
def push_pull(
    tensor: tf.IndexedSlices,
    scope: str = ...,
    average: bool | None = ...,
    device_dense: str = ...,
    device_sparse: str = ...,
    compression: AnyCompressor = ...,
    op: ReduceOp | str | None = ...,
    enable_async: bool = ...,
    name: str | None = ...,
    prescale_factor: float = ...,
    postscale_factor: float = ...,
    priority: int | None = ...,
    sparse_as_dense: bool = ...,
    process_set: ProcessSet | None = ...,
) -> tf.IndexedSlices: ...
@overload
def push_pull(
    tensor: list[Any] | tuple[Any, ...],
    scope: str = ...,
    average: bool | None = ...,
    device_dense: str = ...,
    device_sparse: str = ...,
    compression: AnyCompressor = ...,
    op: ReduceOp | str | None = ...,
    enable_async: bool = ...,
    name: str | None = ...,
    prescale_factor: float = ...,
    postscale_factor: float = ...,
    priority: int | None = ...,
    sparse_as_dense: bool = ...,
    process_set: ProcessSet | None = ...,
) -> list[Any]: ...
@overload
def push_pull(
    tensor: ExchangeInput,
    scope: str = ...,
    average: bool | None = ...,
    device_dense: str = ...,
    device_sparse: str = ...,
    compression: AnyCompressor = ...,
    op: ReduceOp | str | None = ...,
    enable_async: bool = ...,
    name: str | None = ...,
    prescale_factor: float = ...,
    postscale_factor: float = ...,
    priority: int | None = ...,
    sparse_as_dense: bool = ...,
    process_set: ProcessSet | None = ...,
) -> tf.Tensor: ...
@in_plain_words
@reported_to_the_others(_names_of)
def push_pull(
    tensor: ExchangeInput,
    scope: str = "",
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: AnyCompressor = Compression.none,
    op: ReduceOp | str | None = None,
    enable_async: bool = False,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    priority: int | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet | None = None,
) -> Any:
    """Combines a tensor elementwise over all workers; every worker gets the result.

    Section 3 of the BytePS paper (OSDI'20): a push of this worker's value and a pull of the result,
    as one exchange. Within a `tf.function` any number of them are in flight at once; those of one
    name keep their program order.

    Args:
        tensor: a `tf.Tensor` (or what converts to one) of any shape, the same on all workers; of
            dtype float32, float64, float16, bfloat16, int8, uint8, int32 or int64. Or a
            `tf.IndexedSlices`, whose rows may differ. Or a list of those: each is an exchange of
            its own, none waits for the others, and the first goes first.
        scope: a prefix of the exchange's name: `"scope/name"`.
        average: the older way to choose `op`: `True` for `Average`, `False` for `Sum`.
        device_dense: accepted for compatibility and not used: exchanges start from host memory.
        device_sparse: like `device_dense`.
        compression: a member of `tf_byteps.Compression` or its name, or another `Compressor`: what
            is sent takes fewer bytes, and loses bits by that. See docs/compression.md.
        op: `tf_byteps.Sum`, `Average` (the default), `Min`, `Max` or `Product`, or its name. An
            average needs a floating dtype. Integer sums and products wrap around. Only `Sum` and
            `Average` exist for `tf.IndexedSlices`, and have gradients.
        enable_async: whether the servers hold the value of this name, add what each worker pushes
            when it arrives, and answer at once with the value as it is then. A worker's first push
            is the initial value: the first one that arrives counts. All later ones are changes.
            Needs `name`; only `Sum`, and no compression. See docs/asynchronous.md.
        name: a string, the same on all workers. Default: derived from the place of the call in the
            program.
        prescale_factor: a number that the tensor is multiplied by before it is sent. Floating
            dtypes only.
        postscale_factor: a number that the result is multiplied by. Floating dtypes only.
        priority: an integer; of what waits to be sent, the highest goes first. With a list it is
            the first tensor's, and falls by one from each to the next. By default what
            was sent first in the first step goes first.
        sparse_as_dense: whether to turn `tf.IndexedSlices` into a dense tensor first. Better if
            most rows are touched.
        process_set: a `tf_byteps.ProcessSet` of the workers that exchange the tensor, of which this
            is one; an average is divided by their number. Default: all workers of the job.

    Returns:
        A tensor of the same shape and dtype; for `tf.IndexedSlices` one with each index once, in
        ascending order; for a list, the list of results.

    Raises:
        TypeError: the dtype cannot be exchanged or not be compressed, or an argument is of another
            type than it must be.
        ValueError: `average` and `op` are both given, or an average of integers is asked for, or
            the compression does not exist or not for this op, or this worker is not in the process
            set.
        NotImplementedError: the op exists in other libraries but not here.
        tf.errors.FailedPreconditionError: `tf_byteps.init()` was not called, or the workers
            disagree about the tensor.
        tf.errors.UnavailableError: a worker or server was lost.

    Example:

    >>> tf_byteps.push_pull(tf.constant([1.0, 2.0]) * tf_byteps.rank(), op=tf_byteps.Sum)
    """
    del device_dense, device_sparse
    if not isinstance(scope, str):
        raise TypeError(f"scope must be a string, got {scope!r}; to choose the operation, pass op=")
    workers = scope_of(process_set)
    if enable_async:
        _check_async(name, average, op, compression, (prescale_factor, postscale_factor), workers)
    reduction = Reduction(
        Sum if enable_async else reduce_op.resolve(average, op),
        resolve_compression(compression),
        prescale_factor,
        postscale_factor,
        sparse_as_dense,
        workers=workers,
    )
    tensors = list(tensor) if isinstance(tensor, (list, tuple)) else [tensor]
    prepared = [reduction.prepare(each) for each in tensors]
    tensor_names = [_push_pull_name(scope, name, each, workers) for each in prepared]
    if enable_async:
        if isinstance(tensor, (list, tuple)):
            tensor_names = [f"{each}/{index}" for index, each in enumerate(tensor_names)]
        held = store.exchange(prepared, tensor_names, checked_priority(priority))
        return held if isinstance(tensor, (list, tuple)) else held[0]
    if not isinstance(tensor, (list, tuple)):
        return reduction.exchange(prepared[0], tensor_names[0], checked_priority(priority))
    tensor_names = [f"{each}/{index}" for index, each in enumerate(tensor_names)]
    return reduction.exchange_all(prepared, tensor_names, checked_priority(priority))


def _check_async(
    name: str | None,
    average: bool | None,
    op: ReduceOp | str | None,
    compression: AnyCompressor,
    factors: tuple[float, float],
    workers: str,
) -> None:
    if name is None:
        raise ValueError(
            "enable_async=True needs a name: the first push of a name brings the initial value, "
            "and later ones, from another line of the program, change it"
        )
    if (average is not None or op is not None) and reduce_op.resolve(average, op) != Sum:
        raise ValueError(
            "enable_async=True adds the workers' changes as they are: leave average and op out, "
            "and divide each change by tf_byteps.size() for their mean"
        )
    if resolve_compression(compression) is not Compression.none or factors != (1, 1):
        raise ValueError(
            "enable_async=True takes no compression and no factors: the first push is the initial "
            "value, which they would change, too"
        )
    if workers:
        raise ValueError(
            "enable_async=True with a process set: servers hold one value for all workers; leave "
            "process_set out"
        )
    store.check_job()


def _push_pull_name(scope: str, name: str | None, tensor: object, workers: str) -> str:
    kind = "push_pull of rows" if isinstance(tensor, tf.IndexedSlices) else "push_pull"
    its = names.unnamed(kind, workers) if name is None else checked(name)
    return names.in_scope(workers, names.in_scope(scope, its))
