"""A table whose rows are on the servers, as a worker sees it.

Row r is in block `r % blocks`, at `r // blocks`. There are as many blocks as servers, at most 64.
Each block is on two servers, if there are two: both get all changes, in the same order, and so have
the same rows. If one is lost, the other one goes on (protocol rule 38).

What a server is asked is in cc/base/table_request.h. Reads are this worker's own. Changes (`make`,
`update` and `write`) are made by all workers together: all must call them in the same order.
"""

from __future__ import annotations

import collections
import dataclasses
import struct
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tf_byteps import _engine, runtime
from tf_byteps.exchange import host

MOST_BLOCKS = 64
_COPIES = 2
_CHUNK = 64 << 20  # bytes of rows that are read or written at once
_MAKE, _READ, _UPDATE, _WRITE = range(4)
_HIGHEST_PRIORITY = 2**31 - 1
_FOREVER = 1e8

_lock = threading.Lock()
# Session -> how many tables of each name it has.
_names: weakref.WeakKeyDictionary[Any, collections.Counter[str]] = weakref.WeakKeyDictionary()


@dataclasses.dataclass(frozen=True)
class Rule:
    """How a server makes and updates the rows of a table.

    Attributes:
        optimizer: 0 for SGD, 1 for Adagrad, 2 for RowWiseAdagrad.
        slot_width: how many numbers the optimizer keeps for a row.
        accumulator: what they begin with.
        epsilon: the optimizer's.
        distribution: of initial rows: 0 for a constant, 1 for a uniform distribution, 2 for a
            normal one, 3 for a normal one within two standard deviations.
        numbers: of the distribution: the value and 0, the limits, or mean and standard deviation.
        seed: of the initial rows. Worker 0's counts.
    """

    optimizer: int
    slot_width: int
    accumulator: float
    epsilon: float
    distribution: int
    numbers: tuple[float, float]
    seed: int


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
        self._widths = (shape[1], rule.slot_width)
        self._copies = min(_COPIES, session.num_servers)
        self.blocks = min(session.num_servers, MOST_BLOCKS, shape[0])
        self._made = [0] * self.blocks  # changes of each block
        self._mutex = threading.Lock()
        self._make(rule)

    def _make(self, rule: Rule) -> None:
        description = struct.pack(
            "<4I5Q4d",
            int(self._dtype.itemsize == 8),
            rule.optimizer,
            rule.distribution,
            0,
            *(0, self.shape[1], 0, self.blocks, rule.seed % (1 << 64)),
            *rule.numbers,
            rule.accumulator,
            rule.epsilon,
        )
        text = self.name.encode()

        def request(block: int) -> np.ndarray[Any, Any]:
            rows = -(-(self.shape[0] - block) // self.blocks)
            own = bytearray(description + text)
            struct.pack_into("<Q", own, 16, rows)
            struct.pack_into("<Q", own, 32, block)
            head = _head(_MAKE, 0, self._made[block], 0, 0.0)
            return np.frombuffer(head + own, np.uint8)

        with self._mutex:
            self._change(request, needs_all=True)

    def read(self, rows: np.ndarray[Any, Any], slot: int = 0) -> np.ndarray[Any, Any]:
        """Some rows, with all changes that this worker has made.

        Args:
            rows: their numbers, an int64 vector in any order.
            slot: 0 for the rows, 1 for what the optimizer keeps for them.

        Returns:
            An array of shape `[len(rows), width]`.
        """
        rows = np.asarray(rows, np.int64)
        found = np.empty((len(rows), self._widths[slot]), self._dtype)
        with self._mutex:
            parts = [np.flatnonzero(rows % self.blocks == block) for block in range(self.blocks)]
            asked = [
                self._request(_READ, slot, block, rows[part] // self.blocks)
                for block, part in enumerate(parts)
            ]
            begun = {
                block: self._start(block, 0, asked[block])
                for block, part in enumerate(parts)
                if len(part)
            }
            errors: list[Exception] = []
            for block, handle in begun.items():
                try:
                    answer = self._read_answer(block, handle, asked[block])
                    found[parts[block]] = answer.view(self._dtype).reshape(-1, self._widths[slot])
                except _engine.EngineError as error:  # wait for the others, too
                    errors.append(error)
            self._raise_first(errors)
        return found

    def _read_answer(
        self, block: int, handle: _engine.Handle, asked: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        """What one of the servers that have the block answers."""
        try:
            return handle.wait(_FOREVER)
        except _engine.EngineError as error:
            if self._copies < _COPIES or not _is_lost(error):
                raise
        return self._start(block, 1, asked).wait(_FOREVER)

    def update(
        self, rows: np.ndarray[Any, Any], gradients: np.ndarray[Any, Any], rate: float
    ) -> None:
        """Updates rows by the sum of the workers' gradients. A collective.

        Args:
            rows: their numbers, an int64 vector, ascending, each once. The workers' may differ.
            gradients: of shape `[len(rows), width]`.
            rate: the learning rate, the same on all workers.
        """
        finite = np.isfinite(gradients).all(axis=1)
        bad = rows[~finite]
        if len(bad):  # the servers tell the others
            rows, gradients, rate = rows[:0], gradients[:0], float("nan")
        gradients = np.ascontiguousarray(gradients, self._dtype)

        def request(block: int) -> np.ndarray[Any, Any]:
            part = np.flatnonzero(rows % self.blocks == block)
            return self._request(
                _UPDATE, 0, block, rows[part] // self.blocks, gradients[part], float(rate)
            )

        with self._mutex:
            try:
                self._change(request)
            except Exception as error:
                if not len(bad):
                    raise
                raise ValueError(
                    f"rows of the table {self.name!r} have gradients that are NaN or infinite, and "
                    "are not updated: look for NaN in the inputs and targets of this step, or "
                    "train with a lower learning rate; the first such rows: "
                    f"{bad[:5].tolist()}"
                ) from error

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
                return self._request(_WRITE, slot, block, rows[part] // self.blocks, of_part)

            with self._mutex:
                self._change(request)

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
        head = _head(kind, slot, self._made[block], len(places), rate)
        parts = [np.frombuffer(head, np.uint8), np.ascontiguousarray(places).view(np.uint8)]
        if values is not None:
            parts.append(values.reshape(-1).view(np.uint8))
        return np.concatenate(parts)

    def _start(self, block: int, copy: int, request: np.ndarray[Any, Any]) -> _engine.Handle:
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
            priority=_HIGHEST_PRIORITY,
        )

    def _change(
        self, request: Callable[[int], np.ndarray[Any, Any]], needs_all: bool = False
    ) -> None:
        """Makes a change of all blocks, on all servers that have them.

        Args:
            request: what to ask for, of a block.
            needs_all: a change that one of two servers has not made is an error.
        """
        begun = []
        for block in range(self.blocks):
            asked = request(block)
            begun.append([self._start(block, copy, asked) for copy in range(self._copies)])
        failed: list[Exception] = []
        for block, handles in enumerate(begun):
            errors = [error for error in map(_error_of, handles) if error is not None]
            if len(errors) < len(handles) and not (needs_all and errors):
                self._made[block] += 1
            else:
                failed += errors
        self._raise_first(failed)

    def _raise_first(self, errors: Sequence[Exception]) -> None:
        """Raises one of the errors, if there is one: what is wrong before what is lost."""
        if not errors:
            return
        error = min(errors, key=_is_lost)
        with host.errors_as_raised():
            if not _is_lost(error):
                raise error
            raise _lost(self.name, error)


def _head(kind: int, slot: int, number: int, rows: int, rate: float) -> bytes:
    return struct.pack("<IIQqd", kind, slot, number, rows, rate)


def _error_of(handle: _engine.Handle) -> _engine.EngineError | None:
    try:
        handle.wait(_FOREVER)
    except _engine.EngineError as error:
        return error
    return None


def _is_lost(error: Exception) -> bool:
    return getattr(error, "code", "") == "UNAVAILABLE"


def _lost(name: str, error: Exception) -> Exception:
    """The error, with what it means for the table."""
    text = (
        f"the table {name!r} has lost rows with its servers: {error}; start the job again, and "
        "load the last checkpoint"
    )
    made = type(error)(text)
    made.code = getattr(error, "code", "")  # pyright: ignore[reportAttributeAccessIssue]
    return made
