"""Copies of blocks of tables that are lost with a server get their rows again (protocol rule 39).

Worker 0 does that, in a thread that runs while a copy lacks rows: it reads some rows from the copy
that has them, and has the other server take them in. Between its two requests this worker makes no
change of the table. So both copies have these rows with the same changes, and training goes on
meanwhile: the copy that is filled takes part in changes of the rows that it has.

Cost: each row that has been changed travels twice, in pieces of `PIECE` bytes. At most half of the
time is spent on that, and nothing is kept. A table that nothing else refers to is not copied.
"""

from __future__ import annotations

import enum
import logging
import struct
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

from tf_byteps import _engine
from tf_byteps.tables import server_requests as requests
from tf_byteps.tables.background import Background
from tf_byteps.tables.server_requests import COPY, FILL, REFILL, STATE

PIECE = 4 << 20  # bytes of rows that are copied at once
_POLL_SECONDS = 0.25
_NO_MEMORY_SECONDS = 10.0

_logger = logging.getLogger("tf_byteps")


class Outcome(enum.Enum):
    """What has come of one step."""

    MORE = "there are more rows to copy"
    WAIT = "nothing can be done now"
    DONE = "the copy has all rows"
    GONE = "no copy has all rows"
    ALONE = "no other server is left"
    NO_MEMORY = "the other server has no memory for the rows"


# Asks a copy: copy, kind, places of rows, what follows them. Returns the bytes of the answer.
Ask = Callable[[int, int, bytes, bytes], bytes]


def step(ask: Ask, lost: int, made: int) -> tuple[Outcome, int]:
    """Copies some rows of a block.

    Args:
        ask: asks one of the two servers that have the block.
        lost: the number of the copy that has lost its rows.
        made: how many changes of the block this worker has made. It makes none meanwhile.

    Returns:
        What has come of it, and how many bytes have been copied.

    Raises:
        EngineError: a server is lost meanwhile; or no server answers any more.
    """
    target = requests.state(ask(lost, STATE, b"", b""))
    source = requests.state(ask(1 - lost, STATE, b"", b""))
    if source.state != requests.WHOLE:
        return Outcome.GONE, 0
    if source.server == target.server:
        return Outcome.ALONE, 0
    if target.state == requests.LOST:
        try:
            target = requests.state(ask(lost, REFILL, b"", source.spec))
        except _engine.EngineError as error:
            if error.code != "RESOURCE_EXHAUSTED":
                raise
            _logger.info("no second copy: %s", error)
            return Outcome.NO_MEMORY, 0
    if target.state == requests.WHOLE:
        return Outcome.DONE, 0
    # It begins after the next change, for which some worker may have asked before.
    if target.state != requests.FILLING or target.made != made or source.made != made:
        return Outcome.WAIT, 0
    begin = struct.pack("<q", target.filled)
    copied = ask(1 - lost, COPY, begin, struct.pack("<Q", PIECE))
    following, count = struct.unpack_from("<qq", copied)
    places, rows = copied[16 : 16 + 8 * count], copied[16 + 8 * count :]
    span = struct.pack("<QQ", target.filled, following)
    target = requests.state(ask(lost, FILL, places, span + rows))
    return Outcome.DONE if target.state == requests.WHOLE else Outcome.MORE, len(rows)


class Table(Protocol):
    """What has copies that lack rows."""

    name: str
    blocks: int

    def refill(self) -> tuple[Outcome, int]:
        """Makes a step for one of its copies; DONE: none lacks rows any more."""
        ...

    def lacking(self) -> int:
        """How many copies lack rows."""
        ...


class Refiller:
    """Fills copies in a thread, of one table after the other. Thread-safe."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._fillings: list[_Filling] = []
        self._background = Background("byteps-tables", self._step)

    def begin(self, table: Table) -> None:
        """Some copies of a table lack rows."""
        with self._mutex:
            if any(each.table() is table for each in self._fillings):
                return
            self._fillings.append(_Filling(weakref.ref(table)))
        self._background.start()
        self._background.wake()

    def _step(self) -> float | None:
        with self._mutex:
            if not self._fillings:
                return None
            filling = self._fillings[0]
        seconds = filling.step()
        if seconds is not None:
            return seconds
        with self._mutex:
            self._fillings.remove(filling)
        return 0.0


class _Filling:
    """Fills the copies of one table, and says so in the log."""

    def __init__(self, table: weakref.ref[Table]) -> None:
        self.table = table
        self._begin: float | None = None
        self._copied = 0
        self._said: set[Outcome] = set()

    def step(self) -> float | None:
        """Returns when the next step is due, in seconds from now; None: there is none."""
        table = self.table()
        if table is None:  # nobody can use it any more
            return None
        begin = time.monotonic()
        self._begin = self._begin or begin
        try:
            outcome, copied = table.refill()
        except _engine.EngineError as error:  # a server is lost; or the job has failed, or ends
            _logger.info("rows of the table %r cannot be copied now: %s", table.name, error)
            return _POLL_SECONDS
        except RuntimeError as error:  # the session has ended
            _logger.info("rows of the table %r are not copied: %s", table.name, error)
            return None
        self._copied += copied
        self._say(outcome, table, time.monotonic() - self._begin)
        if outcome in (Outcome.DONE, Outcome.GONE):  # of the latter the next change tells
            return None
        pauses = {Outcome.MORE: time.monotonic() - begin, Outcome.NO_MEMORY: _NO_MEMORY_SECONDS}
        return pauses.get(outcome, _POLL_SECONDS)

    def _say(self, outcome: Outcome, table: Table, seconds: float) -> None:
        if outcome in self._said or outcome in (Outcome.WAIT, Outcome.GONE):
            return
        self._said.add(outcome)
        if outcome is Outcome.DONE:
            _logger.warning(
                "all blocks of the table %r are on two servers again: %d bytes copied in %.1f s",
                table.name,
                self._copied,
                seconds,
            )
            return
        _logger.warning(
            "%d of %d blocks of the table %r are on one server only, because a server is lost: %s",
            table.lacking(),
            table.blocks,
            table.name,
            _WHAT_NEXT[outcome],
        )


_WHAT_NEXT = {
    Outcome.MORE: "they are copied to another one",
    Outcome.ALONE: "they are copied when it has been started again",
    Outcome.NO_MEMORY: "no other one has memory for them",
}

refiller = Refiller()
