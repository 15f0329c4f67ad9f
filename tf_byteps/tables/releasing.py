"""Tables on the servers that this worker's program can use no more (protocol rule 41).

A worker releases a table when nothing refers to it any more. Python finds that out at other times
in each worker. Servers free the rows when all workers have released them.

A server that gets the part of a lost one does not know who has released it. So this worker says it
again, more and more rarely, until it learns that all workers have released the table, or that no
rows are left: then nobody can ask for rows again, and none come back. A thread does that: nobody
waits for it.

Cost: an entry and a request to each copy, at most every minute, for each table that this worker has
released and another one has not. Of a table that all have released nothing is kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import queue
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tf_byteps import _engine, runtime
from tf_byteps.tables import server_requests as requests
from tf_byteps.tables.background import Background

_FIRST_SECONDS = 0.25  # between the first two times; each pause is twice the last
_MOST_SECONDS = 60.0

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
            Whether that was the last time.

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
        return is_over([requests.state(each).state for each in answers])


def is_over(states: list[int]) -> bool:
    """Whether nobody can ask for rows of a table that this worker has released, nor fill any.

    Args:
        states: what all copies of its blocks have answered to this worker's release.
    """
    # A copy that is freed has heard all workers. Others may be on a server that has not heard all;
    # they have no rows, or the workers that they have not heard say it again.
    return requests.FREED in states or all(each == requests.LOST for each in states)


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
        self.due = now

    def step(self, now: float) -> bool:
        """Says it. Returns whether there is more to do."""
        if not self._table.is_there() or self._is_over():
            return False
        self.due = now + self._pause
        self._pause = min(2 * self._pause, _MOST_SECONDS)
        return True

    def _is_over(self) -> bool:
        try:
            return self._table.release()
        except _engine.EngineError as error:
            _logger.info("the table %r cannot be released now: %s", self._table.name, error)
            return False


class Releaser:
    """Releases tables in a thread. Thread-safe."""

    def __init__(self) -> None:
        # Putting is safe wherever Python frees objects.
        self._gone: queue.SimpleQueue[_Table] = queue.SimpleQueue()
        self._releases: list[_Release] = []  # the thread's
        self._background = Background("byteps-releases", self._step)

    def watch(self, table: object, name: str, homes: list[list[int]]) -> Callable[[], object]:
        """Releases a table of this session when nothing refers to it any more.

        Args:
            table: of which no reference is kept.
            name: of the table.
            homes: the servers of the copies of each block.

        Returns:
            A function that takes that back.
        """
        self._background.start()
        session = weakref.ref(runtime.session("a table on the servers"))
        watched = weakref.finalize(table, self._release, _Table(name, homes, session))
        watched.atexit = False
        return watched.detach

    def _release(self, table: _Table) -> None:
        self._gone.put(table)
        self._background.wake()

    def _step(self) -> float | None:
        now = time.monotonic()
        with contextlib.suppress(queue.Empty):
            while True:
                self._releases.append(_Release(self._gone.get_nowait(), now))
        self._releases = [each for each in self._releases if each.due > now or each.step(now)]
        if not self._releases:
            return None
        return max(0.0, min(each.due for each in self._releases) - time.monotonic())


releaser = Releaser()
