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
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

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
    def is_spread(self) -> bool:
        """Whether other processes have rows, too."""
        return self.workers > 1

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

    def numbers(self, rank: int, begin: int, end: int) -> Any:
        """Which rows of all a worker has in some of its places.

        Args:
            rank: the worker's.
            begin: the first place.
            end: behind the last place. Places that have no row are left out.

        Returns:
            A slice or an array of numbers.
        """
        rows = range(begin * self.workers + rank, min(end * self.workers, self.rows), self.workers)
        return slice(rows.start, rows.stop, rows.step)

    def owners(self, rows: Any) -> Any:
        """The ranks of the workers that have these rows of all, an integer tensor."""
        return rows % self.workers

    def places(self, rows: tf.Tensor) -> tf.Tensor:
        """Where these rows of all are on the workers that have them."""
        return rows // self.workers


@dataclasses.dataclass(frozen=True)
class BlockLayout(Layout):
    """Tables whose rows are given to keys, which belong to blocks of rows.

    Block b of all is on the worker with rank `b % workers`. In files the blocks are one after the
    other. Between workers, row p of a worker has the number `p * workers + rank`.

    Attributes:
        blocks: of each table.
        own_lines: how many lines, behind the rows, are this worker's own and in no file.
    """

    blocks: tuple[int, ...]
    own_lines: int = 0

    @functools.cached_property
    def sizes(self) -> Any:
        """The rows of each block, an array."""
        each = [rows // blocks for (_, rows), blocks in zip(self.tables, self.blocks, strict=True)]
        return np.repeat(np.asarray(each, np.int64), self.blocks)

    @functools.cached_property
    def tables_of_blocks(self) -> Any:
        """For each block the number of its table, an array."""
        return np.repeat(np.arange(len(self.tables)), self.blocks)

    @functools.cached_property
    def rows_of_worker(self) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        """How many rows and lines each worker has."""
        most = max(int(self.own_sizes(rank).sum()) for rank in range(self.workers))
        return most + self.own_lines

    def own_sizes(self, rank: int) -> Any:
        """The rows of a worker's blocks, an array."""
        return self.sizes[rank :: self.workers]

    def first_block_of(self, table: int) -> int:
        """The first block of a table, given by its number."""
        return sum(self.blocks[:table])

    def numbers(self, rank: int, begin: int, end: int) -> Any:
        """See `Layout`."""
        begins = (np.cumsum(self.sizes) - self.sizes)[rank :: self.workers]
        sizes = self.own_sizes(rank)
        shift = np.repeat(begins - (np.cumsum(sizes) - sizes), sizes)[begin:end]
        return shift + np.arange(begin, begin + len(shift))


@dataclasses.dataclass(frozen=True)
class ServerLayout(Layout):
    """A table whose rows are on the servers. What workers have of it is one row, which is not used.

    Attributes:
        table: a `server_table.ServerTable`.
        dtype: of the rows.
        slot: 0 for the rows, then one for each state that the optimizer keeps for them.
    """

    table: Any
    dtype: str
    slot: int = 0

    @property
    def is_spread(self) -> bool:
        """Also if an elastic job has one worker now."""
        return True

    @property
    def rows_of_worker(self) -> int:
        """How many rows the variable has that stands for the table."""
        return 1

    def of_state(self, slot: int) -> ServerLayout:
        """The layout of a state that the optimizer keeps for the rows, which is in this slot."""
        return dataclasses.replace(self, slot=slot)


@dataclasses.dataclass(frozen=True)
class Stack:
    """Tables of one width that are updated alike.

    Attributes:
        variable: this worker's rows of them, a `keras.Variable`.
        layout: which rows those are.
        optimizer: what updates them, a `keras.optimizers.Optimizer`; `None` if the model's does.
        keyed: the keys that have the rows, a `keyed.Keyed`; `None` if the rows have numbers.
    """

    variable: Any
    layout: Layout
    optimizer: Any = None
    keyed: Any = None

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
    """The `Layout` of a variable of whose rows other processes have some, or `None`.

    Args:
        variable: a `keras.Variable` or `tf.Variable`, of any kind.
    """
    layout = marked(variable)
    return layout if layout is not None and layout.is_spread else None


def marked(variable: Any) -> Layout | None:
    """The `Layout` that `mark` has noted of a variable, also in one process, or `None`."""
    return getattr(variable, _ATTRIBUTE, None)


def any_of(variables: Iterable[Any]) -> bool:
    """Whether rows of some variable are spread over several workers."""
    return any(of(variable) is not None for variable in variables)


def spread_variables(model: keras.Model) -> list[Any]:
    """The variables of a model and its optimizers whose rows are spread over the workers."""
    variables = list(model.variables)
    for optimizer in optimizers_of(model):
        variables += optimizer.variables
    return [variable for variable in variables if of(variable) is not None]
