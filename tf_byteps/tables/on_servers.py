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
from tf_byteps.tables import distributions, layout as layouts
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
    optimizer = table.optimizer
    kinds = {"SGD": (0, 0), "LazySGD": (0, 0), "Adagrad": (1, table.embedding_dim)}
    number, slot_width = kinds.get(type(optimizer).__name__, (2, 1))
    rule = Rule(
        optimizer=number,
        slot_width=slot_width,
        accumulator=distributions.constant(
            getattr(optimizer, "initial_accumulator_value", 0.0), dtype
        ),
        epsilon=float(getattr(optimizer, "epsilon", 0.0)),
        distribution=distribution,
        numbers=numbers,
        seed=distributions.seed_of(table.initializer),
    )
    return ServerTable(table.name, table.shape, dtype, rule)


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


def _update(layout: ServerLayout, gradient: tf.IndexedSlices, rate: Any) -> None:
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

    rate = tf.cast(rate, tf.as_dtype(layout.dtype))
    values = tf.cast(gradient.values, rate.dtype)
    done = called(update, [gradient.indices, values, rate, _after_changes()], tf.float32)
    done = tf.ensure_shape(done, [])
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

    class OnServers(type(optimizer)):
        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            """Updates the rows of a gradient. Keras calls it."""
            layout = layouts.of(variable)
            assert isinstance(layout, ServerLayout) and isinstance(gradient, tf.IndexedSlices)
            _update(layout, gradient, learning_rate)

    OnServers.__name__ = OnServers.__qualname__ = type(optimizer).__name__
    return OnServers
