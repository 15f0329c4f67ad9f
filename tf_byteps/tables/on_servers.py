"""Tables on the servers, in TensorFlow's programs: looking up, and updating by an optimizer.

Requests are made in Python (`server_table`), from functions that TensorFlow calls: outside of what
XLA compiles. All of a process come one after the other, in the program's order. So each worker
makes the changes of several tables in the same order, and no two wait for each other's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_byteps.ops.library import token
from tf_byteps.private.tensorflow import gen_resource_variable_ops
from tf_byteps.tables import distributions, layout as layouts, saving, server_rules
from tf_byteps.tables.configs import TableConfig
from tf_byteps.tables.layout import ServerLayout
from tf_byteps.tables.server_requests import Rule
from tf_byteps.tables.server_table import ServerTable

_ORDER = "tables on servers"


def make(table: TableConfig, dtype: str) -> ServerTable:
    """Makes a table on the servers. A collective.

    Args:
        table: what the program says of it.
        dtype: of its rows.

    Raises:
        ValueError: the dtype is no float32 or float64, or servers cannot make such initial rows.
    """
    if dtype not in ("float32", "float64"):
        raise ValueError(
            f"rows of the table {table.name!r} are on the servers and have dtype {dtype}: use "
            "float32 or float64, also with a mixed-precision policy"
        )
    distribution, numbers = distributions.of(
        table.name, table.initializer, table.embedding_dim, dtype, "servers"
    )
    rule = Rule(
        update=server_rules.of(table.optimizer, table.embedding_dim, dtype),
        distribution=distribution,
        numbers=numbers,
        seed=distributions.seed_of(table.initializer),
    )
    return ServerTable(table.name, table.shape, dtype, rule)


def note_states(optimizer: Any, layout: ServerLayout) -> None:
    """Notes that the states of an optimizer are on the servers.

    Args:
        optimizer: a built `keras.optimizers.Optimizer` that updates the table's rows only.
        layout: of the rows.
    """
    states = [
        each for each in optimizer.variables if tuple(each.shape)[:1] == (layout.rows_of_worker,)
    ]
    assert len(states) == layout.table.states, [each.path for each in states]
    for slot, state in enumerate(states, 1):
        saving.note_rows(state, layout.of_state(slot))


def rows_of(layout: ServerLayout, indices: tf.Tensor) -> tf.Tensor:
    """Rows of a table, each index once.

    Args:
        layout: of the table.
        indices: an int64 vector.

    Returns:
        A tensor of shape `[len(indices), width]`.
    """
    table: ServerTable = layout.table

    def read(rows: np.ndarray[Any, Any], order: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        del order
        return table.read(rows)

    dtype = tf.as_dtype(layout.dtype)
    found = called(read, [indices, _after_changes()], dtype)
    return tf.ensure_shape(found, [None, table.shape[1]])


def _update(layout: ServerLayout, gradient: tf.IndexedSlices, rate: tf.Tensor) -> tf.Tensor:
    table: ServerTable = layout.table

    def update(
        rows: np.ndarray[Any, Any],
        values: np.ndarray[Any, Any],
        rate: np.ndarray[Any, Any],
        order: np.ndarray[Any, Any],
    ) -> np.ndarray[Any, Any]:
        del order
        table.update(rows, values, float(rate))
        return np.float32(0)  # pyright: ignore[reportReturnType]

    values = tf.cast(gradient.values, rate.dtype)
    done = called(update, [gradient.indices, values, rate, _after_changes()], tf.float32)
    done = tf.ensure_shape(done, [])
    _note_change(done)
    return done


def _note_change(done: tf.Tensor) -> None:
    """Changes and lookups that follow in the program wait for this tensor."""
    gen_resource_variable_ops.assign_variable_op(token(_ORDER), done)


def _after_changes() -> tf.Tensor:
    """A number that is there when all changes before have been made."""
    return gen_resource_variable_ops.read_variable_op(token(_ORDER), tf.float32)


def called(function: Callable[..., Any], inputs: list[Any], dtype: Any) -> Any:
    """What a function in Python returns for the values of tensors.

    Args:
        function: of as many arrays as inputs. It returns an array, or a tuple of them.
        inputs: tensors.
        dtype: of the result, or a list of those of the results.

    Returns:
        A tensor, or a list of them.
    """
    if tf.executing_eagerly():
        found = function(*(each.numpy() for each in inputs))
        if isinstance(dtype, list):
            return [tf.convert_to_tensor(each) for each in found]
        return tf.convert_to_tensor(found)
    return tf.numpy_function(function, inputs, dtype)  # pyright: ignore[reportReturnType]


def optimizer_class(optimizer: Any) -> type[Any]:
    """A class that updates rows on the servers, and else is the optimizer's.

    Args:
        optimizer: a `keras.optimizers.Optimizer` that `optimizers.check_on_servers` allows.
    """

    # Workers that go on after a step that has failed must agree on the number of steps. So it grows
    # if and only if the rows have been updated, and before the next table's are.
    class OnServers(type(optimizer)):
        def apply(self, grads: Any, trainable_variables: Any = None) -> None:
            """Updates the rows, and counts the step. Keras calls it."""
            super().apply(grads, trainable_variables)
            _note_change(tf.cast(self.iterations.value, tf.float32))

        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            """Updates the rows of a gradient. Keras calls it."""
            layout = layouts.of(variable)
            assert isinstance(layout, ServerLayout) and isinstance(gradient, tf.IndexedSlices)
            rate = tf.cast(learning_rate, tf.as_dtype(layout.dtype))
            of_step = getattr(self, "_rate_of_step", None)  # Keras's own have none
            done = _update(layout, gradient, rate if of_step is None else of_step(rate))
            with tf.control_dependencies([done]):
                self.iterations.value.assign_add(0)

    OnServers.__name__ = OnServers.__qualname__ = type(optimizer).__name__
    return OnServers
