"""Initial values of a table, of which each worker keeps its rows.

They are the same for any number of workers, and for a table of up to 65,536 rows those of
`keras.layers.Embedding`. Each worker computes all of them, but in blocks: so it needs time for the
whole table, and memory for its own rows and one block. Initializers whose scale depends on the
number of rows, and those of the program's own, compute the whole table at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_byteps.tables.configs import TableConfig
from tf_byteps.tables.layout import Layout

#: Rows that are computed at once.
BLOCK = 1 << 16
# Whose values for a row do not depend on how many rows there are.
_BY_ROWS = (
    keras.initializers.RandomNormal,
    keras.initializers.RandomUniform,
    keras.initializers.TruncatedNormal,
    keras.initializers.Constant,
    keras.initializers.Zeros,
    keras.initializers.Ones,
)


class InitialRows:
    """An initializer of this worker's rows of several tables, one after the other.

    Args:
        tables: the tables, in the order of the layout.
        layout: which rows are this worker's.
    """

    def __init__(self, tables: list[TableConfig], layout: Layout) -> None:
        self._tables = tables
        self._layout = layout

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        """The rows, of shape `[layout.rows_of_worker, width]`. Those that nobody uses are 0."""
        workers = self._layout.workers
        dtype = keras.backend.standardize_dtype(dtype)
        with tf.init_scope():
            own = []
            for table in self._tables:
                first = (self._layout.rank - self._layout.begin_of(table.name)) % workers
                own.append(_rows(table.initializer, *table.shape, dtype, first, workers))
            missing = shape[0] - sum(len(rows) for rows in own)
            own.append(np.zeros((missing, *shape[1:]), own[0].dtype))
            return tf.constant(np.concatenate(own))


def _rows(
    initializer: Any, rows: int, width: int, dtype: str, first: int, step: int
) -> np.ndarray[Any, Any]:
    """A worker's rows of a table.

    Args:
        initializer: a `keras.initializers.Initializer`, or a function of a shape and a dtype.
        rows: of the whole table.
        width: numbers in a row.
        dtype: of the table.
        first: the first row to return, at least 0.
        step: of how many one row is returned.

    Returns:
        An array of shape `[number of rows first, first + step, ..., width]`.
    """
    kept = []
    for begin, block in _blocks(initializer, rows, width, dtype):
        skipped = -(begin - first) % step if begin > first else first - begin
        kept.append(np.array(block[skipped::step]))
    return np.concatenate(kept)


def _blocks(
    initializer: Any, rows: int, width: int, dtype: str
) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    by_rows = type(initializer) in _BY_ROWS or (
        isinstance(initializer, keras.initializers.VarianceScaling)
        and initializer.mode == "fan_out"
    )
    if not by_rows:
        yield 0, _numbers(initializer((rows, width), dtype=dtype))
        return
    for begin in range(0, rows, BLOCK):
        shape = (min(BLOCK, rows - begin), width)
        yield begin, _numbers(_of_block(initializer, begin)(shape, dtype=dtype))


def _of_block(initializer: Any, begin: int) -> Any:
    """The initializer, with another seed for each block: with one they would be equal."""
    seed = getattr(initializer, "seed", None)
    if not begin or not isinstance(seed, int):
        return initializer
    config = {**initializer.get_config(), "seed": (seed + begin) % (1 << 31)}
    return type(initializer).from_config(config)


def _numbers(values: Any) -> np.ndarray[Any, Any]:
    return np.asarray(keras.ops.convert_to_numpy(values))
