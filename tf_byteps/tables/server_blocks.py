"""The blocks of a table on the servers: which servers have them, and what those are asked.

Each block is on two servers, if there are two: both get all changes, in the same order, and so have
the same rows. If one is lost, the other one goes on (protocol rule 38), and worker 0 has its copies
filled again (`refilling`).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tf_byteps import _engine, runtime
from tf_byteps.exchange import host
from tf_byteps.tables import refilling, releasing, server_requests as requests

_MOST_BLOCKS = 64
_COPIES = 2
_HIGHEST_PRIORITY = 2**31 - 1


class ServerBlocks:
    """The blocks of a table. They are on servers once `_place` has said on which.

    Args:
        name: of the table, which no other one has.
        rows: of the table.

    Attributes:
        name: the same.
        blocks: how many there are.
        mutex: who begins a read or a change has it until the end.
    """

    def __init__(self, name: str, rows: int) -> None:
        servers = runtime.session("a table on the servers").num_servers
        self.name = name
        self.blocks = min(servers, _MOST_BLOCKS, rows)
        self.mutex = threading.Lock()
        self._unwatch: Callable[[], object] = lambda: None

    def homes(self) -> list[list[int]]:
        """The servers of the copies of each block, where none has rows already."""
        copies = min(_COPIES, runtime.session("a table on the servers").num_servers)
        return [[block + copy for copy in range(copies)] for block in range(self.blocks)]

    def _place(self, homes: list[list[int]]) -> None:
        """The blocks are in this session, and no change has been made.

        Args:
            homes: the servers of the copies of each block.
        """
        self._session = weakref.ref(runtime.session("a table on the servers"))
        self._unwatch()  # an elastic job's, in an earlier session
        self._unwatch = releasing.releaser.watch(self, self.name, homes)
        self._homes, self._copies = homes, len(homes[0])
        self._made = [0] * self.blocks  # changes of each block
        self._readable = [0] * self.blocks  # which copy has answered
        self._lacking: set[tuple[int, int]] = set()  # worker 0: blocks and copies without rows

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
            handle = self._start(block, copy, request, requests.LOWEST_PRIORITY)
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
        self._check_session()
        home = self._homes[block][copy]
        return requests.start(request, self.name, block, copy, home, priority)

    def _start_on_all(
        self, request: Callable[[int], np.ndarray[Any, Any]]
    ) -> list[list[_engine.Handle]]:
        """Asks all servers that have a block, of each block."""
        begun = []
        for block in range(self.blocks):
            asked = request(block)
            begun.append([self._start(block, copy, asked) for copy in range(self._copies)])
        return begun

    def _check_session(self) -> None:
        if runtime.session("a table on the servers") is not self._session():
            raise RuntimeError(
                f"the table {self.name!r} was on the servers of an earlier session, and is gone: "
                "make its layer after init, and load a checkpoint"
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
        begun = self._start_on_all(request)

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
            raise self._lost(error)

    def _lost(self, error: Exception) -> Exception:
        return requests.lost(self.name, error)
