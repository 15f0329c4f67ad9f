"""`push_pull` of `tf.IndexedSlices` by sums of rows on the servers (`BYTEPS_ROW_SUM_WORKERS`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.exchange.compressor import Compressor
from tf_byteps.ops.library import kernels, token
from tf_byteps.ops.sparse import slices

_NO_LIMIT = -1


@dataclasses.dataclass(frozen=True)
class Rows:
    """What a worker sends.

    Attributes:
        indices: an int64 vector, ascending, each once.
        values: a tensor of two axes, the rows.
        limit: an int64 scalar, the number of rows of the table; -1: not known.
    """

    indices: tf.Tensor
    values: tf.Tensor
    limit: tf.Tensor

    def exchange(self, name: str, average: bool, priority: int) -> tuple[tf.Tensor, tf.Tensor]:
        """The rows of all workers: their indices, ascending, and what they add up to."""
        summed = kernels().byte_ps_row_sum(
            token(name),
            self.indices,
            self.values,
            self.limit,
            tensor_name=name,
            average=average,
            priority=priority,
        )
        return summed.sum_indices, summed.sum_rows


def are_chosen() -> bool:
    """Whether servers add up rows. Read when a function is traced: only what stays as it is for as
    long as the job lasts may decide, and must be the same in all workers."""
    if not runtime.is_initialized():
        return False
    config = runtime.config()
    if config.elastic:
        return config.row_sum_workers == 1
    return 0 < config.row_sum_workers <= runtime.size()


def prepare(
    rows: tf.IndexedSlices, compression: type[Compressor] | Compressor
) -> tuple[Rows, Callable[[Any], tf.IndexedSlices]]:
    """What a worker sends, duplicates merged.

    Args:
        rows: a `tf.IndexedSlices` with values of shape `[rows, ...]`; `rows` may differ between the
            workers.
        compression: a `Compressor` without a codec: the rows may be cast.

    Returns:
        What is sent, and a function of what `Rows.exchange` returned: a `tf.IndexedSlices` that has
        each index once, in ascending order.
    """
    form = slices.form_of(rows)
    merged = slices.merged(slices.flat(rows))
    sent, context = compression.compress(merged.values)
    limit = _NO_LIMIT if rows.dense_shape is None else rows.dense_shape[0]

    def result_of(summed: tuple[tf.Tensor, tf.Tensor]) -> tf.IndexedSlices:
        indices, sums = summed
        return slices.shaped(tf.IndexedSlices(compression.decompress(sums, context), indices), form)

    return Rows(merged.indices, sent, tf.cast(limit, tf.int64)), result_of
