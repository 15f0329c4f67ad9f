"""Updates of an embedding that compute with the rows of a step only.

Keras's optimizers give a gradient of rows (`tf.IndexedSlices`) the numbers of a dense one, but all
of them except SGD without momentum read or write the whole table for it. What is here takes the
rows of the weights and of the optimizer's state at the gradient's indices, computes, and puts them
back: time grows with the rows of a step, not with those of the table.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_byteps.ops.sparse.slices import merged

# The rows of the gradient, of the weights and of each state -> the new ones of weights and states.
RowUpdate = Callable[..., Sequence[tf.Tensor]]


def update_rows(
    update: RowUpdate, gradient: tf.IndexedSlices, variables: Sequence[keras.Variable | tf.Variable]
) -> None:
    """Updates the rows of a table, and of what an optimizer keeps for it.

    Args:
        update: gets the gradient's rows `[rows, ...]`, each index once, and those of each variable.
            Returns new rows for each variable, in the same order.
        gradient: the table's. Rows with one index are added up first.
        variables: the table, and the optimizer's states for it, with as many rows.
    """
    tables = [_table(variable) for variable in variables]
    gradient = merged(gradient)
    rows = [tf.gather(table, gradient.indices) for table in tables]
    values = tf.cast(gradient.values, tables[0].dtype)
    for table, new in zip(tables, update(values, *rows), strict=True):
        table.scatter_update(tf.IndexedSlices(new, gradient.indices))


def adagrad(
    original: Callable[..., None],
    self: keras.optimizers.Adagrad,
    gradient: tf.Tensor | tf.IndexedSlices,
    variable: keras.Variable | tf.Variable,
    learning_rate: tf.Tensor | float,
) -> None:
    """Replaces `keras.optimizers.Adagrad.update_step`: the same numbers, bit for bit.

    Rows that occur several times are not added up first, as they are not in Keras. The strategy
    has done so before.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        original(self, gradient, variable, learning_rate)
        return
    table = _table(variable)
    accumulator = _table(self._accumulators[self._get_variable_index(variable)])
    values, indices = tf.cast(gradient.values, table.dtype), gradient.indices
    accumulator.scatter_add(tf.IndexedSlices(tf.square(values), indices))
    scale = tf.sqrt(tf.gather(accumulator, indices) + self.epsilon)
    step = tf.cast(learning_rate, table.dtype) * values / scale
    table.scatter_sub(tf.IndexedSlices(step, indices))


def clip(
    original: Callable[..., list[Any]],
    self: keras.optimizers.Optimizer,
    gradients: Sequence[tf.Tensor | tf.IndexedSlices | None],
) -> list[Any]:
    """Replaces an optimizer's `_clip_gradients`: gradients of rows stay such.

    The numbers are Keras's. It clips each occurrence of a row by value, and takes the norm of all
    gradients from each occurrence; then it adds them up in a dense gradient. The rows that are not
    in a gradient are 0, so that is not needed. An optimizer with `adds_up_rows` does so first.

    Args:
        original: Keras's function.
        self: the optimizer.
        gradients: tensors, `tf.IndexedSlices` or `None`.

    Returns:
        As many gradients. Rows with one index are one where they had to be added up.
    """
    if self.clipnorm or not (self.global_clipnorm or self.clipvalue):
        return original(self, gradients)
    adds_up_first = getattr(self, "adds_up_rows", False)
    if adds_up_first:
        gradients = _of_rows(merged, gradients)
    if not self.global_clipnorm:
        return original(self, gradients)
    if not adds_up_first:
        gradients = _of_rows(_sorted, gradients)
    clipped = [
        tf.IndexedSlices(values, rows.indices, rows.dense_shape)
        if isinstance(rows, tf.IndexedSlices)
        else values
        for values, rows in zip(
            original(self, _of_rows(lambda rows: rows.values, gradients)), gradients, strict=True
        )
    ]
    return clipped if adds_up_first else _of_rows(merged, clipped)


def _of_rows(
    change: Callable[[tf.IndexedSlices], Any],
    gradients: Sequence[tf.Tensor | tf.IndexedSlices | None],
) -> list[Any]:
    """The gradients, of which those of rows are changed."""
    return [change(each) if isinstance(each, tf.IndexedSlices) else each for each in gradients]


def _sorted(rows: tf.IndexedSlices) -> tf.IndexedSlices:
    """In the order of a dense gradient, in which the norm's sum has its bits."""
    order = tf.argsort(rows.indices, stable=True)
    indices, values = tf.gather(rows.indices, order), tf.gather(rows.values, order)
    return tf.IndexedSlices(values, indices, rows.dense_shape)


def _table(variable: keras.Variable | tf.Variable) -> tf.Variable:
    return variable.value if isinstance(variable, keras.Variable) else variable
