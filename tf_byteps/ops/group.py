"""Exchanges of several tensors: all are compressed, declared, exchanged and decompressed.

Only the exchange has two ways: an operation for each tensor or, in a function that XLA compiles,
one for all.
"""

import contextlib
import dataclasses
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import tensorflow as tf

from tf_byteps import _engine
from tf_byteps.declaration import Declaration
from tf_byteps.exchange import reduce_op
from tf_byteps.exchange.compressor import Compressor, codec_of
from tf_byteps.ops import autograph, compiling
from tf_byteps.ops.compiled import start_scheduling
from tf_byteps.ops.compiled.control_flow_order import in_order
from tf_byteps.ops.compression import shared_norms
from tf_byteps.ops.compression.pipelined_norms import PipelinedNorms
from tf_byteps.ops.library import kernels, token
from tf_byteps.ops.process_sets import on_host
from tf_byteps.ops.sparse import row_sums, slices
from tf_byteps.ops.sparse.rows import of_rows


@dataclasses.dataclass(frozen=True)
class _Sent:
    """A tensor in the form in which it is exchanged.

    Attributes:
        value: a `tf.Tensor`, what `compress` returned; or `row_sums.Rows`.
        is_rows: whether it is of `tf.IndexedSlices`: gathered, or summed by rows.
        shares_norms: whether it is exchanged in units of norms that all workers share.
        decompress: a function that makes the result of what the exchange returned.
    """

    value: Any
    is_rows: bool
    shares_norms: bool
    decompress: Callable[[Any], tf.Tensor | tf.IndexedSlices]


@dataclasses.dataclass(frozen=True)
class Group:
    """Exchanges that do not depend on each other. Equal ones can share a traced function.

    Called with a list of `tf.Tensor` or `tf.IndexedSlices`, it returns the list of results.

    Attributes:
        op: of all.
        compressions: a `Compressor` for each tensor, which compresses it once.
        names: of the exchanges.
        priorities: of the exchanges.
        backup_workers: see `Reduction`.
        merge_repeated_rows: see `Reduction`.
        sums_rows: `row_sums.way` for `tf.IndexedSlices` that are in no codec.
        of_variables: whether the tensors are gradients of variables.
    """

    op: reduce_op.ReduceOp
    compressions: tuple[type[Compressor] | Compressor, ...]
    names: tuple[str, ...]
    priorities: tuple[int, ...]
    backup_workers: int = 0
    merge_repeated_rows: bool = True
    sums_rows: str = ""
    of_variables: bool = False

    def __call__(
        self, tensors: Sequence[tf.Tensor | tf.IndexedSlices]
    ) -> list[tf.Tensor | tf.IndexedSlices]:
        if not tensors:
            return []
        sent = [self._compress(*each) for each in zip(tensors, self.compressions, strict=True)]
        if not tf.executing_eagerly():
            self._declare(sent)
        exchange = self._exchange_compiled if compiling.is_compiled() else self._exchange
        return [each.decompress(result) for each, result in zip(sent, exchange(sent), strict=True)]

    def _compress(
        self, tensor: tf.Tensor | tf.IndexedSlices, compression: type[Compressor] | Compressor
    ) -> _Sent:
        if isinstance(tensor, tf.IndexedSlices):
            return self._compress_rows(tensor, of_rows(compression))
        value, context = autograph.compress(compression, tensor)
        return _Sent(
            value,
            False,
            self._shares_norms(compression, value),
            lambda result: autograph.decompress(compression, result, context),
        )

    def _compress_rows(
        self, rows: tf.IndexedSlices, compression: type[Compressor] | Compressor
    ) -> _Sent:
        if self.sums_rows and not codec_of(compression):
            summed, result_of = row_sums.prepare(rows, compression)
            return _Sent(summed, True, False, result_of)
        averages = self.op == reduce_op.Average
        packed, result_of = slices.prepare(rows, compression, averages, self.merge_repeated_rows)
        return _Sent(packed, True, False, result_of)

    def _shares_norms(self, compression: type[Compressor] | Compressor, value: tf.Tensor) -> bool:
        if not shared_norms.are_needed(compression, value):
            return False
        if self.backup_workers:
            raise ValueError(
                f"compression {codec_of(compression)!r} needs the norms of all workers, and "
                f"backup_workers is {self.backup_workers}: choose one of them"
            )
        return True

    def _declare(self, sent: Sequence[_Sent]) -> None:
        """Declares in one message what has a known shape, so that placing it costs one round
        trip."""
        declarations = []
        for each, name, compression in zip(sent, self.names, self.compressions, strict=True):
            if each.is_rows or not each.value.shape.is_fully_defined():
                continue
            declarations.append(
                declaration(each.value, name, self.op, self.backup_workers, codec_of(compression))
            )
            if each.shares_norms:
                name, shape = _name_of_norms(name), shared_norms.shape_of(each.value)
                kind = str(reduce_op.Max)
                declarations.append(Declaration(name, each.value.dtype.name, shape, kind))
        _engine.declare(declarations)

    def _exchange(self, sent: Sequence[_Sent]) -> list[Any]:
        """An operation for each tensor."""
        return [
            self._exchange_rows(place, each.value)
            if each.is_rows
            else self._push_pull(place, each.value, each.shares_norms)
            for place, each in enumerate(sent)
        ]

    def _exchange_rows(self, place: int, rows: tf.Tensor | row_sums.Rows) -> Any:
        name = f"{self.names[place]}/rows"
        if isinstance(rows, row_sums.Rows):
            average, priority = self.op == reduce_op.Average, self.priorities[place]
            return rows.exchange(name, average, priority, self.sums_rows)
        with on_host(name):
            return kernels().byte_ps_gather(
                token(name),
                rows,
                tensor_name=name,
                priority=self.priorities[place],
                codec=codec_of(of_rows(self.compressions[place])),
            )

    def _push_pull(self, place: int, value: tf.Tensor, shares_norms: bool) -> tf.Tensor:
        with on_host(self.names[place]):
            return self._push_pull_here(place, value, shares_norms)

    def _push_pull_here(self, place: int, value: tf.Tensor, shares_norms: bool) -> tf.Tensor:
        name, priority = self.names[place], self.priorities[place]
        norms = None
        if shares_norms:
            norms = kernels().byte_ps_push_pull(
                token(_name_of_norms(name)),
                shared_norms.own(value),
                tensor_name=_name_of_norms(name),
                op=str(reduce_op.Max),
                priority=priority,
            )
            value = shared_norms.divided(value, norms)
        result = kernels().byte_ps_push_pull(
            token(name),
            value,
            tensor_name=name,
            op=str(self.op),
            priority=priority,
            backup_workers=self.backup_workers,
            codec=codec_of(self.compressions[place]),
        )
        return result if norms is None else shared_norms.multiplied(result, norms)

    def _exchange_compiled(self, sent: Sequence[_Sent]) -> list[tf.Tensor]:
        """One operation: XLA must know that none waits for another (cc/tf/xla_kernels.cc)."""
        values, norms = self._prepare_compiled(sent)
        with self._after_earlier_uses(range(len(self.names))):
            results = in_order(
                lambda: kernels().byte_ps_push_pull_all(
                    [token(name) for name in self._ordered(self.names)],
                    values,
                    tensor_names=self.names,
                    op=str(self.op),
                    priorities=self.priorities,
                    backup_workers=self.backup_workers,
                    codecs=[codec_of(compression) for compression in self.compressions],
                )
            )
        ended_by = _ended_in_this_graph()
        ended_by.update((name, results[0].op.name) for name in self.names)
        return [
            shared_norms.multiplied(result, norms[place]) if place in norms else result
            for place, result in enumerate(results)
        ]

    def _after_earlier_uses(self, places: Iterable[int]) -> contextlib.AbstractContextManager:
        """For operations that exchange under the names of some tensors, or of their norms."""
        ended_by = _ended_in_this_graph()
        before = {ended_by[self.names[i]] for i in places if self.names[i] in ended_by}
        graph = tf.compat.v1.get_default_graph()
        return tf.control_dependencies(map(graph.get_operation_by_name, sorted(before)))

    def _prepare_compiled(
        self, sent: Sequence[_Sent]
    ) -> tuple[list[tf.Tensor], dict[int, tf.Tensor]]:
        """What is exchanged, some of it started, and the norms of which some is in units."""
        ahead = PipelinedNorms(
            [place for place, each in enumerate(sent) if each.shares_norms],
            self._start_before,
            self._start_norms_before,
            self._exchange_norms,
        )
        values = [each.value for each in sent]
        if self.of_variables:
            ended_by = _ended_in_this_graph()
            may_start = [name not in ended_by for name in self.names]
            values = start_scheduling.started_first(
                values, may_start, ahead.start, one_after_another=ahead.is_needed
            )
        return ahead.finish(values)

    def _start_before(
        self, numbers: list[int], values: list[tf.Tensor], passed: list[tf.Tensor]
    ) -> Any:
        return kernels().byte_ps_start_before(
            values,
            passed,
            tensor_names=[self.names[i] for i in numbers],
            op=str(self.op),
            priorities=[self.priorities[i] for i in numbers],
            backup_workers=self.backup_workers,
            codecs=[codec_of(self.compressions[i]) for i in numbers],
        )

    def _start_norms_before(
        self, places: list[int], own: list[tf.Tensor], passed: list[tf.Tensor]
    ) -> Any:
        return kernels().byte_ps_start_before(own, passed, **self._of_norms(places))

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
            return in_order(lambda: kernels().byte_ps_push_pull_all(tokens, own, **attributes))

    def _ordered(self, names: Sequence[str]) -> Sequence[str]:
        """Those whose uses need an order. A token is an argument of the compiled program, and each
        takes 6 us of a step on a GPU. Gradients of variables need no order of their own: the next
        ones are computed from what becomes of these."""
        return names[:1] if self.of_variables else names


# The operation that ends the exchanges of a name, in each graph that XLA compiles. A later use of
# the name comes after it: then no program starts an exchange twice before it ends.
_ended_by: weakref.WeakKeyDictionary[Any, dict[str, str]] = weakref.WeakKeyDictionary()


def _ended_in_this_graph() -> dict[str, str]:
    return _ended_by.setdefault(tf.compat.v1.get_default_graph(), {})


def _name_of_norms(name: str) -> str:
    return f"{name}/norms"


def declaration(
    tensor: tf.Tensor, name: str, op: reduce_op.ReduceOp, backup_workers: int = 0, codec: str = ""
) -> Declaration:
    """How a reduction is declared.

    Args:
        tensor: what is sent, of a known shape.
        name: of the exchange.
        op: the operation; an average is a sum that servers divide.
        backup_workers: see `Reduction`.
        codec: see `Declaration`.
    """
    average = op == reduce_op.Average
    kind = str(reduce_op.Sum if average else op)
    return Declaration(
        name,
        tensor.dtype.name,
        cast("list[int]", tensor.shape.as_list()),
        kind,
        average,
        backup_workers=backup_workers,
        codec=codec,
    )
