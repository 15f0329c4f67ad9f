"""A table whose rows are on the servers, as a worker sees it.

Row r is in block `r % blocks`, at `r // blocks`. There are as many blocks as servers, at most 64.
Each block is on two servers, if there are two: both get all changes, in the same order, and so have
the same rows. If one is lost, the other one goes on (protocol rule 38), and worker 0 has its copies
filled again (`refilling`).

What a server is asked is in cc/base/table_request.h. Reads are this worker's own. Changes (`make`,
`update` and `write`) are made by all workers together: all must call them in the same order.
"""

from __future__ import annotations

import collections
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tf_byteps import _engine, runtime
from tf_byteps.exchange import host
from tf_byteps.tables import refilling, server_requests as requests
from tf_byteps.tables.server_requests import Rule

MOST_BLOCKS = 64
_COPIES = 2
_CHUNK = 64 << 20  # bytes of rows that are read or written at once
_HIGHEST_PRIORITY = 2**31 - 1
_LOWEST_PRIORITY = -(2**31)

_lock = threading.Lock()
# Session -> how many tables of each name it has.
_names: weakref.WeakKeyDictionary[Any, collections.Counter[str]] = weakref.WeakKeyDictionary()


class ServerTable:
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
        self._session = weakref.ref(session)
        with _lock:
            used = _names.setdefault(session, collections.Counter())
            used[name] += 1
            self.name = f"{name}#{used[name]}" if used[name] > 1 else name
        self.shape = shape
        self._dtype = np.dtype(dtype)
        self._widths = (shape[1], *[rule.update.state_width] * rule.update.states)  # by slot
        self._copies = min(_COPIES, session.num_servers)
        self.blocks = min(session.num_servers, MOST_BLOCKS, shape[0])
        self._made = [0] * self.blocks  # changes of each block
        self._readable = [0] * self.blocks  # which copy has answered
        self._lacking: set[tuple[int, int]] = set()  # worker 0: blocks and copies without rows
        self.mutex = threading.Lock()
        self._make(rule)

    def _make(self, rule: Rule) -> None:
        def request(block: int) -> np.ndarray[Any, Any]:
            rows = -(-(self.shape[0] - block) // self.blocks)
            shape = (rows, self.shape[1])
            spec = requests.spec(self.name, shape, self._dtype, (block, self.blocks), rule)
            head = requests.head(requests.MAKE, 0, self._made[block], 0, 0.0)
            return np.frombuffer(head + spec, np.uint8)

        with self.mutex:
            self._begin_change(request, needs_all=True)()

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

    def _read_answer(
        self, block: int, handle: _engine.Handle, asked: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        """What one of the servers that have the block answers."""
        try:
            return handle.wait(requests.FOREVER)
        except _engine.EngineError as error:
            if self._copies < _COPIES or not requests.is_lost(error):
                raise
        answer = self._start(block, 1 - self._readable[block], asked).wait(requests.FOREVER)
        self._readable[block] = 1 - self._readable[block]
        return answer

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

    def _request(
        self,
        kind: int,
        slot: int,
        block: int,
        places: np.ndarray[Any, Any],
        values: np.ndarray[Any, Any] | None = None,
        rate: float = 0.0,
    ) -> np.ndarray[Any, Any]:
        head = requests.head(kind, slot, self._made[block], len(places), rate)
        parts = [np.frombuffer(head, np.uint8), np.ascontiguousarray(places).view(np.uint8)]
        if values is not None:
            parts.append(values.reshape(-1).view(np.uint8))
        return np.concatenate(parts)

    def lacking(self) -> int:
        """How many copies of blocks have lost their rows, and not got all of them again."""
        with self.mutex:
            return len(self._lacking)

    def refill(self) -> tuple[refilling.Outcome, int]:
        """Copies some rows to a copy that lacks them. Worker 0's thread calls it.

        Returns:
            What has come of it, DONE if no copy lacks rows, and how many bytes have been copied.
        """
        last = refilling.Outcome.DONE
        with self.mutex:
            for block, copy in sorted(self._lacking):
                outcome, copied = self._refill(block, copy)
                if outcome is refilling.Outcome.MORE:
                    return outcome, copied
                if outcome in (refilling.Outcome.DONE, refilling.Outcome.GONE):
                    self._lacking.remove((block, copy))
                    return (refilling.Outcome.MORE if self._lacking else outcome), copied
                last = outcome
        return last, 0

    def _refill(self, block: int, copy: int) -> tuple[refilling.Outcome, int]:
        def ask(copy: int, kind: int, places: bytes, body: bytes) -> bytes:
            head = requests.head(kind, 0, self._made[block], len(places) // 8, 0.0)
            request = np.frombuffer(head + places + body, np.uint8)
            handle = self._start(block, copy, request, _LOWEST_PRIORITY)
            return handle.wait(requests.FOREVER).tobytes()

        return refilling.step(ask, copy, self._made[block])

    def _note_lost(self, block: int, errors: Sequence[Exception | None]) -> None:
        """Of a change that one copy has made: the other one lacks rows, if it says so."""
        if runtime.rank() != 0 or self._copies < _COPIES:
            return
        lost = {(block, n) for n, error in enumerate(errors) if error and requests.is_lost(error)}
        self._lacking |= lost
        if lost:
            refilling.refiller.begin(self)

    def _start(
        self,
        block: int,
        copy: int,
        request: np.ndarray[Any, Any],
        priority: int = _HIGHEST_PRIORITY,
    ) -> _engine.Handle:
        if runtime.session("a table on the servers") is not self._session():
            raise RuntimeError(
                f"the table {self.name!r} was on the servers of an earlier session, and is gone: "
                "make its layer after init, and load a checkpoint"
            )
        return _engine.exchange(
            request,
            name=f"table {self.name}/block {block}/copy {copy}",
            kind="table",
            home=block + copy,
            priority=priority,
        )

    def _begin_change(
        self, request: Callable[[int], np.ndarray[Any, Any]], needs_all: bool = False
    ) -> Callable[[], None]:
        """Begins a change of all blocks, on all servers that have them.

        Args:
            request: what to ask for, of a block.
            needs_all: a change that one of two servers refuses is an error.

        Returns:
            A function that waits for it.
        """
        begun = []
        for block in range(self.blocks):
            asked = request(block)
            begun.append([self._start(block, copy, asked) for copy in range(self._copies)])

        def end() -> None:
            failed: list[Exception] = []
            for block, handles in enumerate(begun):
                outcomes = [requests.error_of(handle) for handle in handles]
                errors = [error for error in outcomes if error is not None]
                is_made = len(errors) < len(handles)
                if is_made and not (needs_all and any(not requests.is_lost(e) for e in errors)):
                    self._made[block] += 1
                    self._note_lost(block, outcomes)
                else:
                    failed += errors
            self._raise_first(failed)

        return end

    def _raise_first(self, errors: Sequence[Exception]) -> None:
        """Raises one of the errors, if there is one: what is wrong before what is lost."""
        if not errors:
            return
        error = min(errors, key=requests.is_lost)
        with host.errors_as_raised():
            if not requests.is_lost(error):
                raise error
            raise requests.lost(self.name, error)
