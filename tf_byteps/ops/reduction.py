"""What `push_pull` and the gradients' reductions have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_byteps.exchange import reduce_op
from tf_byteps.exchange.arguments import BACKWARD_ORDER
from tf_byteps.exchange.compression import Compression
from tf_byteps.exchange.compression_choice import CompressionChoice, of_variables, resolve_choice
from tf_byteps.exchange.compressor import codec_of
from tf_byteps.exchange.power_sgd import PowerSGDCompressor
from tf_byteps.ops import batching, compiling
from tf_byteps.ops.arguments import checked_tensor
from tf_byteps.ops.compression import low_rank
from tf_byteps.ops.factors import factor_of
from tf_byteps.ops.group import Group
from tf_byteps.ops.process_sets import size_in
from tf_byteps.ops.sparse import row_sums
from tf_byteps.types import Exchanged, ExchangeInput


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
        workers: `process_sets.scope_of` those who exchange, with which the names begin.
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
        workers: str = "",
    ) -> None:
        if workers and backup_workers:
            raise ValueError(
                f"backup_workers is {backup_workers}, and an exchange of a process set waits for "
                "all of its workers: set it to 0, or leave process_set out"
            )
        self.op = op
        self.compression = resolve_choice(compression)
        self.prescale_factor = prescale_factor
        self.postscale_factor = postscale_factor
        self.sparse_as_dense = sparse_as_dense
        self.backup_workers = backup_workers
        self.merge_repeated_rows = merge_repeated_rows
        self.workers = workers

    def prepare(self, tensor: ExchangeInput) -> tf.Tensor | tf.IndexedSlices:
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
        group = Group(
            self.op,
            tuple(compressions[index] for index in whole),
            tuple(tensor_names[index] for index in whole),
            tuple(priority - index * step for index in whole),
            self.backup_workers,
            self.merge_repeated_rows,
            row_sums.way() if self.merge_repeated_rows else "",
            of_variables=variables is not None,
        )
        reduced = self._exchange_matrices(
            [scaled[index] for index in matrices],
            [tensor_names[index] for index in matrices],
            [compressions[index] for index in matrices],
            priority,
            None if variables is None else [variables[index] for index in matrices],
        )
        reduced += batching.run(group, [scaled[index] for index in whole])
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
        size = size_in(names[0])
        return [each * tf.cast(size, each.dtype) for each in averages]

    def exchange(self, tensor: Exchanged, name: str, priority: int = BACKWARD_ORDER) -> Exchanged:
        """Exchanges what `prepare` returned."""
        return self.exchange_all([tensor], [name], priority)[0]


def _scaled(tensor: Exchanged, factor: float) -> Exchanged:
    """`tensor * factor`; for 16-bit floats in float32, so that the factor is not rounded."""
    if isinstance(factor, (int, float)) and factor == 1:
        return tensor
    if isinstance(tensor, tf.IndexedSlices):
        values = tf.convert_to_tensor(_scaled(tensor.values, factor))
        return tf.IndexedSlices(values, tensor.indices, tensor.dense_shape)
    if not tensor.dtype.is_floating:
        raise ValueError(
            f"a tensor of dtype {tensor.dtype.name} cannot be scaled by {factor}: cast it to a "
            "floating dtype"
        )
    wide = tf.float32 if tensor.dtype.size < tf.float32.size else tensor.dtype
    return tf.cast(tf.cast(tensor, wide) * factor_of(factor, wide), tensor.dtype)
