"""Rows for a worker's indices, from the workers that have them.

Each index is asked for once, however often a batch has it. With u different indices, rows of R
bytes and n workers, a worker sends and receives about `u * 8` bytes of indices and `u * R` of rows,
whatever n is, in two exchanges for all tables of one width.
"""

from __future__ import annotations

from typing import Any, cast

import tensorflow as tf

from tf_byteps.ops import names
from tf_byteps.ops.scattering import alltoall
from tf_byteps.tables import on_servers
from tf_byteps.tables.layout import Layout, ServerLayout

_HIGHEST_PRIORITY = 2**31 - 1


def look_up(variable: tf.Variable, layout: Layout, indices: tf.Tensor, name: str) -> tf.Tensor:
    """Rows of tables. With several workers it is a collective: all must call it alike.

    Args:
        variable: this worker's rows, of shape `[layout.rows_of_worker, width]`.
        layout: which rows those are.
        indices: among the rows of all tables, an int64 vector of any length, which may differ
            between the workers.
        name: of the exchanges, the same on all workers.

    Returns:
        A tensor of shape `[len(indices), width]`. The gradient that the variable gets from it is
        a `tf.IndexedSlices` of the rows of all tables, which `gradients.reduce` takes to the
        workers that have them.
    """
    if layout.workers == 1:
        return tf.gather(variable, indices)
    different, position = tf.unique(indices)
    if isinstance(layout, ServerLayout):
        tf.convert_to_tensor(variable)  # a tape watches what is read
        rows = on_servers.rows_of(layout, different)
        rows = _of_variable(variable, layout, different, tf.stop_gradient(rows))
        return tf.gather(rows, position)
    asked, splits, order = by_owner(layout, different)
    name = names.numbered(name)
    wanted, counts = alltoall(asked, splits, name=f"{name}/indices", priority=_HIGHEST_PRIORITY)
    own = tf.gather(variable, layout.places(wanted))
    rows, _ = alltoall(own, counts, name=f"{name}/rows", priority=_HIGHEST_PRIORITY)
    rows = tf.ensure_shape(rows, [None, *variable.shape[1:]])
    rows = _of_variable(variable, layout, asked, tf.stop_gradient(rows))
    return tf.gather(rows, tf.gather(tf.math.invert_permutation(order), position))


def by_owner(layout: Layout, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Numbers of rows in the order of the workers that have them.

    Args:
        layout: which worker has which rows.
        rows: an int64 vector.

    Returns:
        The rows, sorted by owner and else as they were; how many each worker has, a vector; and
        where in `rows` each of the sorted ones was.
    """
    owners = layout.owners(rows)
    counts = tf.math.bincount(
        tf.cast(owners, tf.int32), minlength=layout.workers, maxlength=layout.workers
    )
    order = tf.argsort(owners, stable=True)
    return tf.gather(rows, order), counts, order


def _of_variable(
    variable: tf.Variable, layout: Layout, asked: tf.Tensor, rows: tf.Tensor
) -> tf.Tensor:
    """The rows, as a function of the variable whose gradient has the numbers of all tables' rows.

    The variable has this worker's rows, others have sent these: TensorFlow cannot know.
    """
    shape = tf.constant([layout.rows, *cast("list[int]", variable.shape[1:].as_list())], tf.int64)

    @tf.custom_gradient
    def attached(handle: tf.Tensor, rows: tf.Tensor) -> Any:
        del handle

        def gradient(of_rows: tf.Tensor) -> Any:
            return tf.IndexedSlices(of_rows, asked, shape), None

        return tf.identity(rows), gradient

    return attached(variable.handle, rows)


def with_numbers(numbers: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """The bits of an int64 before each row."""
    bits = tf.bitcast(numbers, rows.dtype)
    return tf.concat([tf.reshape(bits, [-1, 8 // rows.dtype.size]), rows], 1)


def without_numbers(packed: tf.Tensor, like: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """What `with_numbers` was given. `like` has the dtype of the rows."""
    columns = 8 // like.dtype.size
    bits = packed[:, :columns]
    return tf.bitcast(bits[:, 0] if columns == 1 else bits, tf.int64), packed[:, columns:]
