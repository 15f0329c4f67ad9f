"""Rows for a worker's indices, from the workers that have them.

Each index is asked for once, however often a batch has it. With u different indices, rows of R
bytes and n workers, a worker sends and receives about `u * 4` bytes of indices and `u * R` of rows,
in two exchanges for all tables of one width. Of both 1 / n is its own and stays with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import tensorflow as tf

from tf_byteps.ops import names
from tf_byteps.ops.custom_gradients import custom_gradient
from tf_byteps.ops.scattering import alltoall
from tf_byteps.tables import on_servers
from tf_byteps.tables.layout import Layout, ServerLayout, Stack

_HIGHEST_PRIORITY = 2**31 - 1


def look_up_all(stacks: Sequence[Stack], indices: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Rows of tables. With several workers it is a collective: all must call it alike.

    Args:
        stacks: of the tables, each once.
        indices: of each stack, among the rows of its tables: an int64 vector of any length, which
            may differ between the workers.

    Returns:
        For each stack a tensor of shape `[len(indices), width]`. The gradient that its variable
        gets from that is a `tf.IndexedSlices` of the rows of its tables, which `gradients.reduce`
        takes to whoever has them.
    """
    at_servers = [at for at, stack in enumerate(stacks) if isinstance(stack.layout, ServerLayout)]
    found = {}
    if at_servers:
        of_servers = [stacks[at] for at in at_servers], [indices[at] for at in at_servers]
        found = dict(zip(at_servers, _look_up_on_servers(*of_servers), strict=True))
    return [
        found[at] if at in found else _look_up(stack, its_indices)
        for at, (stack, its_indices) in enumerate(zip(stacks, indices, strict=True))
    ]


def _look_up(stack: Stack, indices: tf.Tensor) -> tf.Tensor:
    """What `look_up_all` does, of tables on the workers."""
    variable, layout = stack.variable.value, stack.layout
    if not layout.is_spread:
        return tf.gather(variable, indices)
    different, position = tf.unique(indices)
    asked, splits, order = by_owner(layout, different)
    name = names.numbered(stack.variable.path)
    sent = tf.cast(asked, number_dtype(layout))
    wanted, counts = alltoall(sent, splits, name=f"{name}/indices", priority=_HIGHEST_PRIORITY)
    own = tf.gather(variable, layout.places(wanted))
    rows, _ = alltoall(own, counts, name=f"{name}/rows", priority=_HIGHEST_PRIORITY)
    rows = tf.ensure_shape(rows, [None, *variable.shape[1:]])
    rows = _of_variable(variable, layout, asked, tf.stop_gradient(rows))
    return tf.gather(rows, tf.gather(tf.math.invert_permutation(order), position))


def _look_up_on_servers(stacks: Sequence[Stack], indices: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """What `look_up_all` does, of tables on the servers. No collective."""
    layouts = [cast("ServerLayout", stack.layout) for stack in stacks]
    variables = [stack.variable.value for stack in stacks]
    different = [tf.unique(each) for each in indices]
    for variable in variables:
        tf.convert_to_tensor(variable)  # a tape watches what is read
    found = on_servers.rows_of(layouts, [each.y for each in different])
    return [
        tf.gather(_of_variable(variable, layout, each.y, tf.stop_gradient(rows)), each.idx)
        for variable, layout, each, rows in zip(variables, layouts, different, found, strict=True)
    ]


def by_owner(layout: Layout, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Numbers of rows in the order of the workers that have them.

    Args:
        layout: which worker has which rows.
        rows: an int64 vector.

    Returns:
        The rows, sorted by owner and else as they were; how many each worker has, a vector; and
        where in `rows` each of the sorted ones was.
    """
    owners = tf.cast(layout.owners(rows), tf.int32)
    # Not a sort, which takes ten times as long.
    parts = tf.dynamic_partition(tf.range(tf.size(rows)), owners, layout.workers)
    order = tf.concat(parts, 0)
    return tf.gather(rows, order), tf.stack([tf.size(part) for part in parts]), order


def number_dtype(layout: Layout, rows_dtype: tf.DType = tf.float32) -> tf.DType:
    """In which dtype the numbers of rows travel: the shortest.

    Args:
        layout: which worker has which rows.
        rows_dtype: of the rows that they travel with, if they do. A number is as long as several of
            its elements.
    """
    is_short = layout.rows_of_worker * layout.workers <= tf.int32.max and rows_dtype.size <= 4
    return tf.int32 if is_short else tf.int64


def _of_variable(
    variable: tf.Variable, layout: Layout, asked: tf.Tensor, rows: tf.Tensor
) -> tf.Tensor:
    """The rows, as a function of the variable whose gradient has the numbers of all tables' rows.

    The variable has this worker's rows, others have sent these: TensorFlow cannot know.
    """
    shape = tf.constant([layout.rows, *cast("list[int]", variable.shape[1:].as_list())], tf.int64)

    @custom_gradient
    def attached(handle: tf.Tensor, rows: tf.Tensor) -> Any:
        del handle

        def gradient(of_rows: tf.Tensor) -> Any:
            return tf.IndexedSlices(of_rows, asked, shape), None

        return tf.identity(rows), gradient

    return attached(variable.handle, rows)


def with_numbers(numbers: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """The bits of an integer before each row."""
    bits = tf.bitcast(numbers, rows.dtype)
    return tf.concat([tf.reshape(bits, [-1, numbers.dtype.size // rows.dtype.size]), rows], 1)


def without_numbers(packed: tf.Tensor, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
    """What `with_numbers` was given. `dtype` is that of the numbers."""
    columns = dtype.size // packed.dtype.size
    bits = packed[:, :columns]
    return tf.bitcast(bits[:, 0] if columns == 1 else bits, dtype), packed[:, columns:]
