"""A table whose rows are on the servers, as a worker sees it.

Row r is in block `r % blocks`, at `r // blocks`. There are as many blocks as servers, at most 64.
`server_blocks` says on which servers they are.

What a server is asked is in cc/base/table_request.h. Reads are this worker's own. Changes (`make`,
`update` and `write`) are made by all workers together: all must call them in the same order.
"""

from __future__ import annotations

import collections
import struct
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tf_byteps import _engine, runtime
from tf_byteps.tables import server_requests as requests
from tf_byteps.tables.server_blocks import ServerBlocks
from tf_byteps.tables.server_requests import Point, Rule

_CHUNK = 64 << 20  # bytes of rows that are read or written at once

_lock = threading.Lock()
# Session, or member of an elastic job -> how many tables of each name it has.
_names: weakref.WeakKeyDictionary[Any, collections.Counter[str]] = weakref.WeakKeyDictionary()


class ServerTable(ServerBlocks):
    """A table whose rows are on the servers. Making it is a collective.

    Args:
        name: of the table. Each use of it in a session is another table.
        shape: rows, and numbers in a row.
        dtype: "float32" or "float64".
        rule: how rows are made and updated.

    Raises:
        EngineError: a server has no memory for it, or the workers make different tables; or what
            `host.raise_errors_as` makes of it. So do all methods.
    """

    def __init__(self, name: str, shape: tuple[int, int], dtype: str, rule: Rule) -> None:
        session = runtime.session("a table on the servers")
        with _lock:
            used = _names.setdefault(session.member or session, collections.Counter())
            used[name] += 1
            number = used[name]
        super().__init__(f"{name}#{number}" if number > 1 else name, shape[0])
        self.shape, self._rule = shape, rule
        self._dtype = np.dtype(dtype)
        self._widths = (shape[1], *[rule.update.state_width] * rule.update.states)  # by slot
        self._first_begin()

    def _first_begin(self) -> None:
        self._begin(self.homes())

    def _begin(self, homes: list[list[int]], point: Point | None = None) -> None:
        """Makes the table in this session. A collective.

        Args:
            homes: the servers of the copies of each block.
            point: where it goes on, of rows that servers have kept; `None`: it is new.
        """

        def request(block: int) -> np.ndarray[Any, Any]:
            rows = -(-(self.shape[0] - block) // self.blocks)
            shape = (rows, self.shape[1])
            spec = requests.spec(self.name, shape, self._dtype, (block, self.blocks), self._rule)
            head = requests.head(requests.MAKE if point is None else requests.RESUME, 0, 0, 0, 0.0)
            at = b"" if point is None else struct.pack("<2Q", *point.of(block))
            return np.frombuffer(head + at + spec, np.uint8)

        with self.mutex:
            self._place(homes)
            self._begin_change(request, needs_all=True)()
            if point is not None:
                self._made = list(point.numbers)

    @property
    def states(self) -> int:
        """How many the optimizer keeps for each row."""
        return len(self._widths) - 1

    def read(self, rows: np.ndarray[Any, Any], slot: int = 0) -> np.ndarray[Any, Any]:
        """Some rows, with all changes that this worker has made.

        Args:
            rows: their numbers, an int64 vector in any order.
            slot: 0 for the rows, then one for each state that the optimizer keeps for them.

        Returns:
            An array of shape `[len(rows), width]`.
        """
        with self.mutex:
            return self.begin_read(rows, slot)()

    def begin_read(
        self, rows: np.ndarray[Any, Any], slot: int = 0
    ) -> Callable[[], np.ndarray[Any, Any]]:
        """Begins to `read`. The caller has the mutex until the end.

        Returns:
            A function that waits, and returns the rows.
        """
        rows = np.asarray(rows, np.int64)
        found = np.empty((len(rows), self._widths[slot]), self._dtype)
        parts = [np.flatnonzero(rows % self.blocks == block) for block in range(self.blocks)]
        asked = [
            self._request(requests.READ, slot, block, rows[part] // self.blocks)
            for block, part in enumerate(parts)
        ]
        begun = {
            block: self._start(block, self._readable[block], asked[block])
            for block, part in enumerate(parts)
            if len(part)
        }

        def end() -> np.ndarray[Any, Any]:
            errors: list[Exception] = []
            for block, handle in begun.items():
                try:
                    answer = self._read_answer(block, handle, asked[block])
                    found[parts[block]] = answer.view(self._dtype).reshape(-1, self._widths[slot])
                except _engine.EngineError as error:  # wait for the others, too
                    errors.append(error)
            self._raise_first(errors)
            return found

        return end

    def update(
        self, rows: np.ndarray[Any, Any], gradients: np.ndarray[Any, Any], rate: float
    ) -> None:
        """Updates rows by the sum of the workers' gradients. A collective.

        Args:
            rows: their numbers, an int64 vector, ascending, each once. The workers' may differ.
            gradients: of shape `[len(rows), width]`.
            rate: the learning rate, the same on all workers.
        """
        with self.mutex:
            self.begin_update(rows, gradients, rate)()

    def begin_update(
        self, rows: np.ndarray[Any, Any], gradients: np.ndarray[Any, Any], rate: float
    ) -> Callable[[], None]:
        """Begins to `update`. The caller has the mutex until the end.

        Returns:
            A function that waits.
        """
        finite = np.isfinite(gradients).all(axis=1)
        bad = rows[~finite]
        if len(bad):  # the servers tell the others
            rows, gradients, rate = rows[:0], gradients[:0], float("nan")
        gradients = np.ascontiguousarray(gradients, self._dtype)

        def request(block: int) -> np.ndarray[Any, Any]:
            part = np.flatnonzero(rows % self.blocks == block)
            return self._request(
                requests.UPDATE, 0, block, rows[part] // self.blocks, gradients[part], float(rate)
            )

        end_change = self._begin_change(request)

        def end() -> None:
            try:
                end_change()
            except Exception as error:
                if not len(bad):
                    raise
                raise ValueError(
                    f"rows of the table {self.name!r} have gradients that are NaN or infinite, and "
                    "are not updated: look for NaN in the inputs and targets of this step, or "
                    "train with a lower learning rate; the first such rows: "
                    f"{bad[:5].tolist()}"
                ) from error

        return end

    def write(self, values: np.ndarray[Any, Any] | None, slot: int = 0) -> None:
        """Sets all rows, or what the optimizer keeps for them. A collective.

        Args:
            values: of shape `[rows, width]`. Those of worker 0 count.
            slot: see `read`.
        """
        if runtime.rank() != 0:
            values = None
        for begin, end in self._chunks(slot):
            mine = None if values is None else np.ascontiguousarray(values[begin:end], self._dtype)
            rows = np.arange(begin, begin if mine is None else end)

            def request(
                block: int, rows: np.ndarray[Any, Any] = rows, mine: Any = mine
            ) -> np.ndarray[Any, Any]:
                part = np.flatnonzero(rows % self.blocks == block)
                of_part = None if mine is None else mine[part]
                return self._request(
                    requests.WRITE, slot, block, rows[part] // self.blocks, of_part
                )

            with self.mutex:
                self._begin_change(request)()

    def read_all(self, slot: int = 0) -> np.ndarray[Any, Any]:
        """All rows, or what the optimizer keeps for them, in this worker's memory."""
        found = np.empty((self.shape[0], self._widths[slot]), self._dtype)
        for begin, end in self._chunks(slot):
            found[begin:end] = self.read(np.arange(begin, end), slot)
        return found

    def _chunks(self, slot: int) -> list[tuple[int, int]]:
        step = max(1, _CHUNK // (self._widths[slot] * self._dtype.itemsize))
        return [
            (begin, min(begin + step, self.shape[0])) for begin in range(0, self.shape[0], step)
        ]
