"""Tables on the servers that this worker's program can use no more (protocol rule 41).

A worker releases a table when nothing refers to it any more. Python finds that out at other times
in each worker. Servers free the rows when all workers have released them.

A server that gets the part of a lost one does not know who has released it. So this worker says it
again, more and more rarely, until all servers of the table have freed it; and when a server has
been lost, or has come back, since then. A thread does that: nobody waits for it.
"""

from __future__ import annotations

import atexit
import dataclasses
import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tf_byteps import _engine, runtime
from tf_byteps.tables import server_requests as requests

_FIRST_SECONDS = 0.25  # between the first two times; each pause is twice the last
_MOST_SECONDS = 60.0
_WATCH_SECONDS = 10.0  # between looks whether servers have been lost
_JOIN_SECONDS = 5.0

_logger = logging.getLogger("tf_byteps")


@dataclasses.dataclass(frozen=True)
class _Table:
    """What is left of a table that nothing refers to: where its copies are."""

    name: str
    homes: list[list[int]]  # of the copies of each block
    session: weakref.ref[Any]

    def is_there(self) -> bool:
        """Whether its session is still the present one."""
        try:
            return runtime.session("a table on the servers") is self.session()
        except RuntimeError:
            return False

    def release(self) -> bool:
        """Says that this worker has released it.

        Returns:
            Whether all copies are freed.

        Raises:
            EngineError: a server is lost meanwhile; or the job has failed, or ends.
        """
        request = np.frombuffer(requests.head(requests.RELEASE, 0, 0, 0, 0.0), np.uint8)
        begun = [
            requests.start(request, self.name, block, copy, home, requests.LOWEST_PRIORITY)
            for block, homes in enumerate(self.homes)
            for copy, home in enumerate(homes)
        ]
        answers = [handle.wait(requests.FOREVER).tobytes() for handle in begun]
        return all(requests.state(each).state == requests.FREED for each in answers)


class _Release:
    """Releases a table, as often as need be.

    Args:
        table: the table.
        now: on the monotonic clock.

    Attributes:
        due: when the next step is.
    """

    def __init__(self, table: _Table, now: float) -> None:
        self._table = table
        self._pause = _FIRST_SECONDS
        self._changes: int | None = None  # of servers, before it was freed
        self.due = now

    def step(self, now: float) -> bool:
        """Says it, if it has to be said. Returns whether there may be more to do."""
        if not self._table.is_there():
            return False
        changes = _changes_of_servers()
        if changes != self._changes:
            self._changes = changes if self._is_freed() else None
        is_known = self._changes is not None
        self.due = now + (_WATCH_SECONDS if is_known else self._pause)
        self._pause = _FIRST_SECONDS if is_known else min(2 * self._pause, _MOST_SECONDS)
        return True

    def _is_freed(self) -> bool:
        try:
            return self._table.release()
        except _engine.EngineError as error:
            _logger.info("the table %r cannot be released now: %s", self._table.name, error)
            return False


def _changes_of_servers() -> int:
    """How often this worker has seen a server lost, or come back."""
    counters = _engine.worker_counters()
    return counters.get("lost_servers", 0) + counters.get("returned_servers", 0)


class Releaser:
    """A thread that releases tables. Thread-safe."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._has_ended = False
        # None: the process ends. Putting is safe wherever Python frees objects.
        self._gone: queue.SimpleQueue[_Table | None] = queue.SimpleQueue()

    def watch(self, table: object, name: str, homes: list[list[int]]) -> Callable[[], object]:
        """Releases a table of this session when nothing refers to it any more.

        Args:
            table: of which no reference is kept.
            name: of the table.
            homes: the servers of the copies of each block.

        Returns:
            A function that takes that back.
        """
        self._begin()
        session = weakref.ref(runtime.session("a table on the servers"))
        watched = weakref.finalize(table, self._gone.put, _Table(name, homes, session))
        watched.atexit = False
        return watched.detach

    def _begin(self) -> None:
        with self._mutex:
            if self._thread is None and not self._has_ended:
                # A daemon: a program that fails does not wait for it.
                self._thread = threading.Thread(
                    target=self._run, name="byteps-releases", daemon=True
                )
                self._thread.start()

    def end(self) -> None:
        """The process ends."""
        with self._mutex:
            self._has_ended = True
        self._gone.put(None)
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        releases: list[_Release] = []
        while True:
            seconds = None
            if releases:
                seconds = max(0.0, min(each.due for each in releases) - time.monotonic())
            try:
                table = self._gone.get(timeout=seconds)
                if table is None:
                    return
                releases.append(_Release(table, time.monotonic()))
            except queue.Empty:
                pass
            now = time.monotonic()
            releases = [each for each in releases if each.due > now or each.step(now)]


releaser = Releaser()
atexit.register(releaser.end)
