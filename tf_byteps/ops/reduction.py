"""What `push_pull` and the gradients' reductions have in common."""

import contextlib
import dataclasses
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tf_byteps import _engine
from tf_byteps.ops import (
    backward_order,
    compiling,
    low_rank,
    reduce_op,
    shared_norms,
    slices,
    together,
)
from tf_byteps.ops.arguments import BACKWARD_ORDER, checked_tensor
from tf_byteps.ops.compression import Compression, of_rows
from tf_byteps.ops.compression_choice import CompressionChoice, of_variables, resolve_choice
from tf_byteps.ops.compressor import Compressor, codec_of
from tf_byteps.ops.library import kernels, token
from tf_byteps.ops.low_rank import PowerSGDCompressor
from tf_byteps.ops.norms_ahead import NormsAhead


class Reduction:
    """How tensors are combined: the operation, and what happens before and after the exchange.

    Args:
        op: a `ReduceOp`.
        compression: see `push_pull`; or a function of a variable, for gradients.
        prescale_factor: see `push_pull`.
        postscale_factor: see `push_pull`.
        sparse_as_dense: see `push_pull`.
        backup_workers: how many workers an average of tensors need not wait for.
        merge_repeated_rows: whether rows of `tf.IndexedSlices` with one index become one row.
    """

    def __init__(
        self,
        op: reduce_op.ReduceOp,
        compression: CompressionChoice = Compression.none,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        sparse_as_dense: bool = False,
        backup_workers: int = 0,
        merge_repeated_rows: bool = True,
    ) -> None:
        self.op = op
        self.compression = resolve_choice(compression)
        self.prescale_factor = prescale_factor
        self.postscale_factor = postscale_factor
        self.sparse_as_dense = sparse_as_dense
        self.backup_workers = backup_workers
        self.merge_repeated_rows = merge_repeated_rows

    def prepare(self, tensor: Any) -> tf.Tensor | tf.IndexedSlices:
        """A tensor to exchange, checked: a `tf.Tensor` or `tf.IndexedSlices`."""
        if isinstance(tensor, tf.IndexedSlices) and self.sparse_as_dense:
            tensor = tf.convert_to_tensor(tensor)
        if isinstance(tensor, tf.IndexedSlices) and compiling.is_compiled():
            if not self.merge_repeated_rows:
                raise ValueError(
                    "merge_repeated_rows=False in a function that XLA compiles: XLA exchanges "
                    "whole tables, in which the rows of an index are added up; compile with "
                    "jit_compile=False"
                )
            tensor = compiling.dense(tensor)
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
        is_low_rank = isinstance(self.compression, PowerSGDCompressor)
        codec = PowerSGDCompressor.name if is_low_rank else codec_of(self.compression)
        if codec and self.op not in (reduce_op.Sum, reduce_op.Average):
            raise ValueError(
                f"compression {codec!r} is for op 'sum' and 'average', not for {str(self.op)!r}: "
                "use compression='none'"
            )
        if self.op == reduce_op.Average and not dtype.is_floating:
            raise ValueError(
                f"an average of {dtype.name} is not exact: pass op=tf_byteps.Sum and divide, or "
                "cast to a floating dtype"
            )
        return tensor

    def exchange_all(
        self,
        tensors: Sequence[Any],
        tensor_names: Sequence[str],
        priority: int = BACKWARD_ORDER,
        variables: Sequence[Any] | None = None,
    ) -> list[Any]:
        """Exchanges prepared tensors. None waits for another.

        They are announced in one message, so that placing them costs one round trip.

        Args:
            tensors: a list of what `prepare` returned, or `None`.
            tensor_names: their names.
            priority: the first one's, from which it falls by one to each next; or learned.
            variables: what the tensors are gradients of, which a function that chooses compression
                is called with.

        Returns:
            The list of results; `None` stays.
        """
        step = 0 if priority == BACKWARD_ORDER else 1
        present = [index for index, tensor in enumerate(tensors) if tensor is not None]
        of = [None] * len(present) if variables is None else [variables[i] for i in present]
        scaled = {index: _scaled(tensors[index], self.prescale_factor) for index in present}
        compressions = dict(zip(present, of_variables(self.compression, of), strict=True))
        matrices = [i for i in present if low_rank.shortens(compressions[i], scaled[i])]
        whole = [index for index in present if index not in matrices]
        group = _Group(
            self.op,
            tuple(compressions[index] for index in whole),
            tuple(tensor_names[index] for index in whole),
            tuple(priority - index * step for index in whole),
            self.backup_workers,
            self.merge_repeated_rows,
            of_variables=variables is not None,
        )
        reduced = self._exchange_matrices(
            [scaled[index] for index in matrices],
            [tensor_names[index] for index in matrices],
            [compressions[index] for index in matrices],
            priority,
            None if variables is None else [variables[index] for index in matrices],
        )
        reduced += together.run(group, [scaled[index] for index in whole])
        results = list(tensors)
        for index, result in zip(matrices + whole, reduced, strict=True):
            results[index] = _scaled(result, self.postscale_factor)
        return results

    def _exchange_matrices(
        self,
        tensors: list[Any],
        names: list[str],
        compressions: list[Any],
        priority: int,
        variables: list[Any] | None,
    ) -> list[Any]:
        if not tensors:
            return []
        if self.backup_workers:
            raise ValueError(
                "compression 'powersgd' averages twice over the same workers, and backup_workers "
                f"is {self.backup_workers}: choose one of them"
            )
        plain = Reduction(reduce_op.Average)
        averages = low_rank.average(
            tensors,
            names,
            compressions,
            lambda parts, of: plain.exchange_all(parts, of, priority, variables),
        )
        if self.op == reduce_op.Average:
            return averages
        size = kernels().byte_ps_place(what="size")
        return [each * tf.cast(size, each.dtype) for each in averages]

    def exchange(self, tensor: Any, name: str, priority: int = BACKWARD_ORDER) -> Any:
        """Exchanges what `prepare` returned."""
        return self.exchange_all([tensor], [name], priority)[0]


@dataclasses.dataclass(frozen=True)
class _Group:
    """Exchanges that do not depend on each other. Equal ones can share a traced function."""

    op: reduce_op.ReduceOp
    compressions: tuple[type[Compressor] | Compressor, ...]
    names: tuple
    priorities: tuple
    backup_workers: int = 0
    merge_repeated_rows: bool = True
    of_variables: bool = False

    def __call__(self, tensors: Sequence[Any]) -> list[Any]:
        if not tf.executing_eagerly():
            _engine.declare(
                [
                    declared
                    for tensor, name, compression in zip(
                        tensors, self.names, self.compressions, strict=True
                    )
                    if isinstance(tensor, tf.Tensor) and tensor.shape.is_fully_defined()
                    for declared in self._declarations(tensor, name, compression)
                ]
            )
        if compiling.is_compiled():
            return self._exchange_compiled(tensors)
        each = zip(tensors, self.names, self.priorities, self.compressions, strict=True)
        return [self._exchange(*one) for one in each]

    def _exchange_compiled(self, tensors: Sequence[Any]) -> list[Any]:
        """One operation: XLA must know that none waits for another (cc/tf/xla_kernels.cc)."""
        if not tensors:
            return []
        compressed = [
            compression.compress(tensor)
            for compression, tensor in zip(self.compressions, tensors, strict=True)
        ]
        sent, contexts = zip(*compressed, strict=True)
        values, norms = self._prepare_compiled(sent)
        with self._after_earlier_uses(range(len(self.names))):
            results = kernels().byte_ps_push_pull_all(
                [token(name) for name in self._ordered(self.names)],
                values,
                tensor_names=self.names,
                op=str(self.op),
                priorities=self.priorities,
                backup_workers=self.backup_workers,
                codecs=[codec_of(compression) for compression in self.compressions],
            )
        _ended_in_this_graph().update(dict.fromkeys(self.names, results[0].op.name))
        return [
            compression.decompress(
                shared_norms.multiplied(result, norms[i]) if i in norms else result, context
            )
            for i, (compression, result, context) in enumerate(
                zip(self.compressions, results, contexts, strict=True)
            )
        ]

    def _after_earlier_uses(self, places: Iterable[int]) -> contextlib.AbstractContextManager:
        """For operations that exchange under the names of some tensors, or of their norms."""
        ended_by = _ended_in_this_graph()
        before = {ended_by[self.names[i]] for i in places if self.names[i] in ended_by}
        graph = tf.compat.v1.get_default_graph()
        return tf.control_dependencies(map(graph.get_operation_by_name, sorted(before)))

    def _prepare_compiled(
        self, sent: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], dict[int, tf.Tensor]]:
        """What is exchanged, some of it started, and the norms of which some is in units."""
        each = enumerate(zip(self.compressions, sent, strict=True))
        ahead = NormsAhead(
            [i for i, one in each if self._shares_norms(*one)],
            self._start_before,
            self._start_norms_before,
            self._exchange_norms,
        )
        if self.of_variables:
            ended_by = _ended_in_this_graph()
            may_start = [name not in ended_by for name in self.names]
            sent = backward_order.started_first(
                sent, may_start, ahead.start, one_after_another=ahead.is_needed
            )
        return ahead.finish(sent)

    def _start_before(
        self, numbers: list[int], values: list[tf.Tensor], held: list[tf.Tensor]
    ) -> Any:
        return kernels().byte_ps_start_before(
            values,
            held,
            tensor_names=[self.names[i] for i in numbers],
            op=str(self.op),
            priorities=[self.priorities[i] for i in numbers],
            backup_workers=self.backup_workers,
            codecs=[codec_of(self.compressions[i]) for i in numbers],
        )

    def _start_norms_before(
        self, places: list[int], own: list[tf.Tensor], held: list[tf.Tensor]
    ) -> Any:
        return kernels().byte_ps_start_before(own, held, **self._of_norms(places))

    def _of_norms(self, places: list[int]) -> dict[str, Any]:
        return {
            "tensor_names": [_name_of_norms(self.names[i]) for i in places],
            "op": str(reduce_op.Max),
            "priorities": [self.priorities[i] for i in places],
        }

    def _exchange_norms(self, places: list[int], own: list[tf.Tensor]) -> Sequence[tf.Tensor]:
        attributes = self._of_norms(places)
        tokens = [token(name) for name in self._ordered(attributes["tensor_names"])]
        with self._after_earlier_uses(places):
            return kernels().byte_ps_push_pull_all(tokens, own, **attributes)

    def _shares_norms(self, compression: type[Compressor] | Compressor, sent: tf.Tensor) -> bool:
        if not shared_norms.are_needed(compression, sent):
            return False
        if self.backup_workers:
            raise ValueError(
                f"compression {codec_of(compression)!r} needs the norms of all workers, and "
                f"backup_workers is {self.backup_workers}: choose one of them"
            )
        return True

    def _ordered(self, names: Sequence[str]) -> Sequence[str]:
        """Those whose uses need an order. A token is an argument of the compiled program, and each
        takes 6 us of a step on a GPU. Gradients of variables need no order of their own: the next
        ones are computed from what becomes of these."""
        return names[:1] if self.of_variables else names

    def _exchange(
        self,
        tensor: Any,
        name: str,
        priority: int,
        compression: type[Compressor] | Compressor,
    ) -> Any:
        if isinstance(tensor, tf.IndexedSlices):
            return self._exchange_slices(tensor, f"{name}/rows", priority, of_rows(compression))
        sent, context = compression.compress(tensor)
        if not self._shares_norms(compression, sent):
            return compression.decompress(self._sum(sent, name, priority, compression), context)
        norms = kernels().byte_ps_push_pull(
            token(_name_of_norms(name)),
            shared_norms.own(sent),
            tensor_name=_name_of_norms(name),
            op=str(reduce_op.Max),
            priority=priority,
        )
        sent = shared_norms.divided(sent, norms)
        result = shared_norms.multiplied(self._sum(sent, name, priority, compression), norms)
        return compression.decompress(result, context)

    def _sum(
        self,
        sent: tf.Tensor,
        name: str,
        priority: int,
        compression: type[Compressor] | Compressor,
    ) -> tf.Tensor:
        return kernels().byte_ps_push_pull(
            token(name),
            sent,
            tensor_name=name,
            op=str(self.op),
            priority=priority,
            backup_workers=self.backup_workers,
            codec=codec_of(compression),
        )

    def _exchange_slices(
        self,
        tensor: tf.IndexedSlices,
        name: str,
        priority: int,
        compression: type[Compressor] | Compressor,
    ) -> tf.IndexedSlices:
        def gather(rows: Any) -> Any:
            return kernels().byte_ps_gather(
                token(name),
                rows,
                tensor_name=name,
                priority=priority,
                codec=codec_of(compression),
            )

        return slices.reduce_rows(
            tensor,
            gather,
            average=self.op == reduce_op.Average,
            compression=compression,
            merges=self.merge_repeated_rows,
        )

    def _declarations(
        self, tensor: tf.Tensor, name: str, compression: type[Compressor] | Compressor
    ) -> list[tuple]:
        sent, _ = compression.compress(tensor)
        its = [declaration(sent, name, self.op, self.backup_workers, codec_of(compression))]
        if self._shares_norms(compression, sent):
            norms = shared_norms.own(sent)
            its.append(declaration(norms, _name_of_norms(name), reduce_op.Max))
        return its


# The operation that ends the exchanges of a name, in each graph that XLA compiles. A later use of
# the name comes after it: then no program starts an exchange twice before it ends.
_ended_by: weakref.WeakKeyDictionary[Any, dict[str, str]] = weakref.WeakKeyDictionary()


def _ended_in_this_graph() -> dict[str, str]:
    return _ended_by.setdefault(tf.compat.v1.get_default_graph(), {})


def _name_of_norms(name: str) -> str:
    return f"{name}/norms"


def declaration(
    tensor: tf.Tensor,
    name: str,
    op: reduce_op.ReduceOp,
    backup_workers: int = 0,
    codec: str = "",
) -> tuple:
    """How the engine is told of a tensor before its first exchange."""
    average = op == reduce_op.Average
    kind = str(reduce_op.Sum if average else op)
    shape = tensor.shape.as_list()
    return (name, tensor.dtype.name, shape, kind, average, 0, backup_workers, codec)


def _scaled(tensor: Any, factor: float) -> Any:
    """`tensor * factor`; for 16-bit floats in float32, so that the factor is not rounded."""
    if isinstance(factor, (int, float)) and factor == 1:
        return tensor
    if isinstance(tensor, tf.IndexedSlices):
        values = _scaled(tensor.values, factor)
        return tf.IndexedSlices(values, tensor.indices, tensor.dense_shape)
    if not tensor.dtype.is_floating:
        raise ValueError(
            f"a tensor of dtype {tensor.dtype.name} cannot be scaled by {factor}: cast it to a "
            "floating dtype"
        )
    wide = tf.float32 if tensor.dtype.size < tf.float32.size else tensor.dtype
    return tf.cast(tf.cast(tensor, wide) * tf.cast(factor, wide), tensor.dtype)
