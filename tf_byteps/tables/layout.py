"""Which worker has which rows of a table, and which variables are such rows.

Row r is row `r // workers` of the worker with rank `r % workers`. So the first rows of a table,
often those of the most frequent indices, are spread over all workers; blocks of rows would put them
on one. And for each number of workers the rows of a file are in one order.

Tables of one width are one after the other in one variable: their rows travel together, so that the
number of exchanges does not depend on the number of tables. All workers have as many rows; the last
ones of some are not used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tf_byteps.exchange.optimizers import optimizers_of

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

_ATTRIBUTE = "byteps_rows_of_table"


@dataclasses.dataclass(frozen=True)
class Layout:
    """How the rows of some tables, one after the other, are spread over workers.

    Attributes:
        tables: pairs of a name and a number of rows.
        workers: how many there are.
        rank: this worker's.
    """

    tables: tuple[tuple[str, int], ...]
    workers: int
    rank: int

    @property
    def rows(self) -> int:
        """Of all tables."""
        return sum(rows for _, rows in self.tables)

    @property
    def rows_of_worker(self) -> int:
        """How many rows each worker has."""
        return -(-self.rows // self.workers)

    def begin_of(self, table: str) -> int:
        """The first row of a table, among those of all tables."""
        begin = 0
        for name, rows in self.tables:
            if name == table:
                return begin
            begin += rows
        raise KeyError(table)

    def has(self, table: str) -> bool:
        """Whether a table is among them."""
        return any(name == table for name, _ in self.tables)

    def owners(self, rows: Any) -> Any:
        """The ranks of the workers that have these rows of all, an integer tensor."""
        return rows % self.workers

    def places(self, rows: tf.Tensor) -> tf.Tensor:
        """Where these rows of all are on the workers that have them."""
        return rows // self.workers


@dataclasses.dataclass(frozen=True)
class ServerLayout(Layout):
    """A table whose rows are on the servers. What workers have of it is one row, which is not used.

    Attributes:
        table: a `server_table.ServerTable`.
        dtype: of the rows.
        slot: 0 for the rows, 1 for what the optimizer keeps for them.
    """

    table: Any
    dtype: str
    slot: int = 0

    @property
    def rows_of_worker(self) -> int:
        """How many rows the variable has that stands for the table."""
        return 1

    def of_states(self) -> ServerLayout:
        """The layout of what the optimizer keeps for the rows."""
        return dataclasses.replace(self, slot=1)


@dataclasses.dataclass(frozen=True)
class Stack:
    """Tables of one width that are updated alike.

    Attributes:
        variable: this worker's rows of them, a `keras.Variable`.
        layout: which rows those are.
        optimizer: what updates them, a `keras.optimizers.Optimizer`; `None` if the model's does.
    """

    variable: Any
    layout: Layout
    optimizer: Any = None

    def by_table(self, rows: Any) -> dict[str, Any]:
        """All rows, an array, as a dict of each table's name and rows."""
        found = {}
        for name, number in self.layout.tables:
            begin = self.layout.begin_of(name)
            found[name] = rows[begin : begin + number]
        return found


def mark(variable: Any, layout: Layout) -> None:
    """Notes that a variable has this worker's rows of tables.

    Args:
        variable: a `keras.Variable` of shape `[layout.rows_of_worker, ...]`.
        layout: which rows those are.
    """
    for each in (variable, variable.value):
        setattr(each, _ATTRIBUTE, layout)


def of(variable: Any) -> Layout | None:
    """The `Layout` of a variable whose rows are spread over several workers, or `None`.

    Args:
        variable: a `keras.Variable` or `tf.Variable`, of any kind.
    """
    layout = getattr(variable, _ATTRIBUTE, None)
    return layout if layout is not None and layout.workers > 1 else None


def any_of(variables: Iterable[Any]) -> bool:
    """Whether rows of some variable are spread over several workers."""
    return any(of(variable) is not None for variable in variables)


def spread_variables(model: keras.Model) -> list[Any]:
    """The variables of a model and its optimizers whose rows are spread over the workers."""
    variables = list(model.variables)
    for optimizer in optimizers_of(model):
        variables += optimizer.variables
    return [variable for variable in variables if of(variable) is not None]
