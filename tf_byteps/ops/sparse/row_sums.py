"""`push_pull` of `tf.IndexedSlices` by one operation: servers add up the rows, or workers do, after
a gather (`BYTEPS_ROW_SUM_WORKERS`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.exchange.compressor import Compressor
from tf_byteps.ops import autograph
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

    def exchange(
        self, name: str, average: bool, priority: int, by: str
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The rows of all workers: their indices, ascending, and what they add up to.

        Args:
            name: of the exchange.
            average: whether they are divided by the number of workers.
            priority: of the exchange.
            by: what `way` has returned.
        """
        summed = kernels().byte_ps_row_sum(
            token(name),
            self.indices,
            self.values,
            self.limit,
            tensor_name=name,
            average=average,
            priority=priority,
            by=by,
        )
        return summed.sum_indices, summed.sum_rows


def way() -> str:
    """How rows are added up. Read when a function is traced: only what stays as it is for as long
    as the job lasts may decide, and must be the same in all workers.

    Returns:
        "servers"; "choice", of what is better for each tensor, which is found out when it is
        exchanged; "" for a gather by other operations, which may be a GPU's.
    """
    if not runtime.is_initialized():
        return ""
    config = runtime.config()
    least = config.row_sum_workers
    if least < 0:
        return "" if tf.config.list_logical_devices("GPU") else "choice"
    if config.elastic:
        return "servers" if least == 1 else ""
    return "servers" if 0 < least <= runtime.size() else ""


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
    sent, context = autograph.compress(compression, merged.values)
    limit = _NO_LIMIT if rows.dense_shape is None else rows.dense_shape[0]

    def result_of(summed: tuple[tf.Tensor, tf.Tensor]) -> tf.IndexedSlices:
        indices, sums = summed
        return slices.shaped(
            tf.IndexedSlices(autograph.decompress(compression, sums, context), indices), form
        )

    return Rows(merged.indices, sent, tf.cast(limit, tf.int64)), result_of
