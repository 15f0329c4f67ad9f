"""Tables on the servers, in TensorFlow's programs: looking up, and updating by an optimizer.

Requests are made in Python (`server_table`), from functions that TensorFlow calls: outside of what
XLA compiles. TensorFlow calls them one after the other, in the program's order. So each worker
makes the changes of several tables in the same order, and no two wait for each other's. A call asks
for rows of all tables of a layer, or updates all tables of a step, as each waits for the servers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.ops.library import token
from tf_byteps.private.tensorflow import gen_resource_variable_ops
from tf_byteps.tables import distributions, layout as layouts, saving, server_rules, server_tables
from tf_byteps.tables.calling import called
from tf_byteps.tables.configs import TableConfig
from tf_byteps.tables.elastic_tables import ElasticTable
from tf_byteps.tables.layout import ServerLayout
from tf_byteps.tables.server_requests import Rule
from tf_byteps.tables.server_table import ServerTable

_ORDER = "tables on servers"
_local = threading.local()


def make(table: TableConfig, dtype: str) -> ServerTable:
    """Makes a table on the servers. A collective, but in elastic jobs.

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
    kind = ElasticTable if runtime.config().elastic else ServerTable
    return kind(table.name, table.shape, dtype, rule)


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


def _tables(layouts: Sequence[ServerLayout]) -> dict[str, ServerTable]:
    return {layout.table.name: layout.table for layout in layouts}


def rows_of(stacks: Sequence[ServerLayout], indices: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Rows of tables, which are asked for all at once.

    Args:
        stacks: the layouts of the tables, each once.
        indices: of each table, an int64 vector with each index once.

    Returns:
        For each table a tensor of shape `[len(indices), width]`.
    """

    def read(tables: list[ServerTable], *given: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        *rows, _ = given
        return server_tables.read(tables, rows)

    dtypes = [tf.as_dtype(layout.dtype) for layout in stacks]
    found = called(read, _tables(stacks), [*indices, _after_changes()], dtypes)
    return [
        tf.ensure_shape(rows, [None, layout.table.shape[1]])
        for rows, layout in zip(found, stacks, strict=True)
    ]


@dataclasses.dataclass
class _Step:
    """Updates of a step that have been asked for, and are made at once."""

    # For each table its layout, the gradient and the learning rate.
    updates: list[tuple[ServerLayout, tf.IndexedSlices, tf.Tensor]] = dataclasses.field(
        default_factory=list
    )
    optimizers: list[Any] = dataclasses.field(default_factory=list)  # each once


@contextlib.contextmanager
def updating_together() -> Iterator[None]:
    """Meanwhile this thread's updates of tables are noted. At the end they are made at once.

    Workers that go on after a step that has failed must agree on the number of steps. So the
    optimizers' counts grow when the rows have been updated, and not before.
    """
    outer, step = getattr(_local, "step", None), _Step()
    _local.step = step
    try:
        yield
    finally:
        _local.step = outer
    if not step.updates:
        return
    with tf.control_dependencies([_update(step.updates)]):
        for optimizer in step.optimizers:
            optimizer.iterations.value.assign_add(1)


def _update(updates: Sequence[tuple[ServerLayout, tf.IndexedSlices, tf.Tensor]]) -> tf.Tensor:
    """Makes updates, of each table one. What it returns is there when they have been made."""
    tables, number = _tables([layout for layout, _, _ in updates]), len(updates)

    def update(tables: list[ServerTable], *given: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        rows, values, rates = (given[at * number : (at + 1) * number] for at in range(3))
        server_tables.update(tables, rows, values, list(map(float, rates)))
        return np.float32(0)  # pyright: ignore[reportReturnType]

    rows = [gradient.indices for _, gradient, _ in updates]
    rates = [rate for _, _, rate in updates]
    values = [tf.cast(gradient.values, rate.dtype) for _, gradient, rate in updates]
    done = called(update, tables, [*rows, *values, *rates, _after_changes()], tf.float32)
    done = tf.ensure_shape(done, [])
    _note_change(done)
    return done


def _note_change(done: tf.Tensor) -> None:
    """Changes and lookups that follow in the program wait for this tensor."""
    gen_resource_variable_ops.assign_variable_op(token(_ORDER), done)


def _after_changes() -> tf.Tensor:
    """A number that is there when all changes before have been made."""
    return gen_resource_variable_ops.read_variable_op(token(_ORDER), tf.float32)


def optimizer_class(optimizer: Any) -> type[Any]:
    """A class that updates rows on the servers, and else is the optimizer's.

    Args:
        optimizer: a `keras.optimizers.Optimizer` that `optimizers.check_on_servers` allows.
    """

    class OnServers(type(optimizer)):
        def apply(self, grads: Any, trainable_variables: Any = None) -> None:
            """Updates the rows, and counts the step. Keras calls it."""
            if getattr(_local, "step", None) is None:
                with updating_together():
                    return self.apply(grads, trainable_variables)
            super().apply(grads, trainable_variables)
            self.iterations.value.assign_sub(1)  # until the rows have been updated
            _note_change(tf.cast(self.iterations.value, tf.float32))
            _local.step.optimizers.append(self)

        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            """Updates the rows of a gradient. Keras calls it."""
            layout = layouts.of(variable)
            assert isinstance(layout, ServerLayout) and isinstance(gradient, tf.IndexedSlices)
            rate = tf.cast(learning_rate, tf.as_dtype(layout.dtype))
            of_step = getattr(self, "_rate_of_step", None)  # Keras's own have none
            _local.step.updates.append(
                (layout, gradient, rate if of_step is None else of_step(rate))
            )

    OnServers.__name__ = OnServers.__qualname__ = type(optimizer).__name__
    return OnServers
