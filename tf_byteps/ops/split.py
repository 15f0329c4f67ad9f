"""Reductions that are started in one step and waited for in another.

`push_pull` ends with its result, so that a traced function that calls it does not end before. Here
the first operation only hands the tensor to the engine, and the second, in the same function or in
one that runs later, has the sum.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_byteps import _engine
from tf_byteps.exchange.arguments import forward_order_at
from tf_byteps.exchange.compression import Compression, check_with_cross_step
from tf_byteps.exchange.compression_choice import of_variables
from tf_byteps.exchange.compressor import Compressor, codec_of
from tf_byteps.exchange.reduce_op import Average, ReduceOp
from tf_byteps.ops import autograph, compiling
from tf_byteps.ops.compiled import start_scheduling, wait_scheduling
from tf_byteps.ops.group import declaration
from tf_byteps.ops.library import kernels, token
from tf_byteps.ops.reduction import Reduction
from tf_byteps.ops.sparse import slices
from tf_byteps.ops.sparse.rows import of_rows
from tf_byteps.types import Exchanged


@dataclasses.dataclass(frozen=True)
class StartedReduction:
    """A sum or an average that is in flight. Two that are equal can be waited for alike.

    Attributes:
        name: of the exchange.
        dtype: of what is sent, a `tf.DType`.
        shape: the tensor's, a tuple of integers.
        op: `Sum` or `Average`.
        index_dtype: of the indices of `tf.IndexedSlices`, a `tf.DType`; `None` for a tensor.
        merges_rows: see `slices.prepare`.
        compression: a `Compressor`; of the rows, if it is `tf.IndexedSlices`.
        context: what its `compress` has returned, without tensors: they end with their step.
    """

    name: str
    dtype: tf.DType
    shape: tuple
    op: ReduceOp
    index_dtype: tf.DType | None = None
    merges_rows: bool = True
    compression: type[Compressor] | Compressor = Compression.none
    context: Any = None

    def wait(self) -> tf.Tensor | tf.IndexedSlices:
        """The result, once: a `tf.Tensor` or `tf.IndexedSlices`, as `push_pull` returns it."""
        is_sparse = self.index_dtype is not None
        result = kernels().byte_ps_wait(
            token(self.name),
            [wait_scheduling.at_once()] if compiling.is_compiled() else [],
            T=self.dtype,
            tensor_name=self.name,
            shape=[None, None] if is_sparse else self.shape,
        )
        if self.index_dtype is None:
            return self._decompressed(result)
        dense_shape = tf.constant(self.shape, self.index_dtype)
        return slices.unpack(
            result,
            slices.Form(
                dense_shape[1:], self.shape[1:], self.index_dtype, dense_shape, self.merges_rows
            ),
            average=self.op == Average,
            decompress=self._decompressed,
        )

    def _decompressed(self, tensor: tf.Tensor) -> tf.Tensor:
        return autograph.decompress(self.compression, tensor, self.context)


def start_reductions(
    tensors: Sequence[Any],
    names: Sequence[str],
    shapes: Sequence[Any],
    reduction: Reduction,
    variables: Sequence[Any] | None = None,
) -> list[StartedReduction | None]:
    """Starts reductions over all workers. None waits for another.

    They are announced in one message, so that placing them costs one round trip.

    Args:
        tensors: a list of what `Reduction.prepare` returned, or `None`; with `tf.IndexedSlices` the
            width of the rows is the shape's.
        names: those of the exchanges, in the order in which the forward pass needs their results.
        shapes: the static shapes of the (dense) tensors, tuples of integers.
        reduction: the `Reduction` whose `prepare` it was, of which nothing but the operation, the
            compression and what becomes of repeated rows is used.
        variables: see `Reduction.exchange_all`.

    Returns:
        A list of `StartedReduction`; `None` stays.

    Raises:
        ValueError: the compression's `compress` leaves a tensor for `decompress`.
    """
    present = [index for index, tensor in enumerate(tensors) if tensor is not None]
    of = [None if variables is None else variables[index] for index in present]
    starts = {
        index: _to_start(tensors[index], names[index], tuple(shapes[index]), reduction, compression)
        for index, compression in zip(present, of_variables(reduction.compression, of), strict=True)
    }
    _engine.declare(
        [
            declaration(tensor, each.name, each.op, codec=codec_of(each.compression))
            for tensor, each in starts.values()
            if each.index_dtype is None
        ]
    )
    early = _start_early(starts, reduction.op) if compiling.is_compiled() else set()
    for index, (sent, started) in starts.items():
        if index not in early:
            _start(sent, started, forward_order_at(index))
    return [starts[index][1] if index in starts else None for index in range(len(tensors))]


def _to_start(
    tensor: Exchanged,
    name: str,
    shape: tuple[int, ...],
    reduction: Reduction,
    compression: type[Compressor] | Compressor,
) -> tuple[tf.Tensor, StartedReduction]:
    """What is sent, and what will have its sum."""
    merges, index_dtype = reduction.merge_repeated_rows, None
    if isinstance(tensor, tf.IndexedSlices):
        name, index_dtype = f"{name}/rows", tensor.indices.dtype
        compression = of_rows(compression)
        sent, context = slices.pack(tensor, compression, merges)
    else:
        check_with_cross_step(compression)
        sent, context = autograph.compress(compression, tf.ensure_shape(tensor, shape))
    if any(map(tf.is_tensor, tf.nest.flatten(context))):
        raise ValueError(
            f"compression {compression!r} keeps a tensor for decompress, which cross_step=True "
            "calls in the next step: keep none, or train without cross_step"
        )
    return sent, StartedReduction(
        name, sent.dtype, shape, reduction.op, index_dtype, merges, compression, context
    )


def _start_early(
    starts: Mapping[int, tuple[tf.Tensor, StartedReduction]], op: ReduceOp
) -> set[int]:
    """Starts those that backpropagation should not put off; their indices."""
    early: set[int] = set()
    indices = list(starts)

    def start(
        numbers: list[int], values: list[tf.Tensor], passed: list[tf.Tensor]
    ) -> tuple[list[tf.Tensor], Any]:
        chosen = [indices[number] for number in numbers]
        early.update(chosen)
        its = [starts[index][1] for index in chosen]
        passed_on = kernels().byte_ps_push_pull_start_before(
            [token(each.name) for each in its],
            values,
            passed,
            tensor_names=[each.name for each in its],
            op=str(op),
            priorities=[forward_order_at(index) for index in chosen],
            codecs=[codec_of(each.compression) for each in its],
        )
        return values, passed_on

    sent = [starts[index][0] for index in indices]
    may_start = [starts[index][1].index_dtype is None for index in indices]
    start_scheduling.started_first(sent, may_start, start)
    return early


def _start(sent: tf.Tensor, started: StartedReduction, priority: int) -> None:
    common = {
        "tensor_name": started.name,
        "priority": priority,
        "codec": codec_of(started.compression),
    }
    if started.index_dtype is not None:
        kernels().byte_ps_gather_start(token(started.name), sent, **common)
    else:
        kernels().byte_ps_push_pull_start(token(started.name), sent, op=str(started.op), **common)


def prepare_gpus() -> None:
    """Lets steps that XLA compiles for GPUs start reductions that outlast them."""
    for gpu in tf.config.list_logical_devices("GPU"):
        with tf.init_scope(), tf.device(gpu.name):
            kernels().byte_ps_note_allocator()


def forget(names: Iterable[str]) -> None:
    """Gives up the results of reductions that were started and that nobody has waited for.

    The other workers get theirs all the same.

    Args:
        names: those of the exchanges; of some nothing may be in flight.
    """
    kernels().byte_ps_forget(tensor_names=list(names))


def starts_and_waits() -> int:
    """How many reductions this process has started, or asked for their results, so far."""
    return int(kernels().byte_ps_starts_and_waits())
