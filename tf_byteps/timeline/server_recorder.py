"""What a server records of a timeline: each worker's push of each part, the sum, the reply."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterator

from tf_byteps import _engine
from tf_byteps.files import path_for
from tf_byteps.timeline.files import END, Session, growing

# Some 30 MB of memory if nothing could be written, and 150 MB on disk.
MAX_REPLIES = 400_000

FIRST_PID = 1_000_000  # of servers; workers have their ranks

_logger = logging.getLogger("tf_byteps")


@dataclasses.dataclass(frozen=True)
class Served:
    """One worker's push of a part, at its server; times are its clock's, in ns since 1970.

    Attributes:
        server: rank of the server.
        tensor: name of the exchange.
        part: number of the part.
        round: how often the tensor had been exchanged before.
        worker: who pushed.
        status: "OK", or how the round failed.
        arrival_began: the first bytes were there.
        arrived: the last byte was there.
        summed: the sum was complete; 0: it failed, or had been complete before.
        answered: the reply was queued.
        epoch: the membership epoch.
    """

    server: int
    tensor: str
    part: int
    round: int
    worker: int
    status: str
    arrival_began: int
    arrived: int
    summed: int
    answered: int
    epoch: int = 0


class ServerRecorder:
    """Records what a server does, from now to `stop`.

    Args:
        server: the engine's, which has started.
        configured: `Config.timeline`.
        rank: the server's.
        session: of its process in its job.
    """

    def __init__(
        self, server: _engine.Server, configured: str, rank: int, session: Session
    ) -> None:
        self._server, self._rank, self._session, self._dropped = server, rank, session, 0
        if os.path.isdir(configured) or configured.endswith("/"):
            path = path_for(configured, "timeline-server", rank)  # others have counters there
        else:  # a worker of this rank has a file, too
            root, suffix = os.path.splitext(configured)
            path = f"{root}.server-{rank}{suffix}"
        server.timeline_start(MAX_REPLIES)
        process = FIRST_PID + rank, f"server {rank}"
        self._file = growing(path, session, process, self._lines, server=rank)

    def stop(self) -> None:
        """Writes what is left. That it cannot be written goes to the log."""
        try:
            self._file.end(END)
        except OSError as error:
            _logger.error("the timeline cannot be written: %s", error)
        if self._dropped:
            _logger.warning(
                "the timeline of server %d ends early: %d pushes came after its last one",
                self._rank,
                self._dropped,
            )

    def _lines(self) -> Iterator[str]:
        process = FIRST_PID + self._rank
        lines, dropped = self._server.timeline_take(self._rank, process, self._session.epoch)
        self._dropped += dropped
        if lines:
            yield lines
