"""What the scheduler of a job tells bpslaunch, through a pipe that it inherits."""

from __future__ import annotations

import os

_READ_BYTES = 4096


class SchedulerReports:
    """The pipe, and what has come through it so far.

    Attributes:
        port: where the scheduler listens; 0 until it says so.
        worker_joined: whether a worker has come.
        rendezvous_done: whether all have: the job has begun.
        ended: how often it has ended in order since, and the scheduler waits for workers that come
            again.
        lost: whom the scheduler has lost first, in a sentence, or "".
        members: of an elastic job: who takes part, by name.
    """

    def __init__(self) -> None:
        self.port = 0
        self.worker_joined = False
        self.rendezvous_done = False
        self.ended = 0
        self.lost = ""
        self.members: set[str] = set()
        self._rest = b""  # of a line whose end has not come
        self.descriptor, end = os.pipe2(os.O_CLOEXEC)
        self._scheduler_end: int | None = end

    @property
    def scheduler_end(self) -> int:
        """Where the scheduler, before it is started, is told to write."""
        assert self._scheduler_end is not None
        return self._scheduler_end

    def close_scheduler_end(self) -> None:
        """The scheduler runs, and has inherited its end."""
        if self._scheduler_end is not None:
            os.close(self._scheduler_end)
        self._scheduler_end = None

    def close(self) -> None:
        """Closes what is open."""
        os.close(self.descriptor)
        self.close_scheduler_end()

    def read(self) -> bool:
        """Reads what has come; returns whether more may come."""
        data = os.read(self.descriptor, _READ_BYTES)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            kind, _, value = line.decode().partition(" ")
            if kind == "port":
                self.port = int(value)
            elif kind == "joined":
                self.worker_joined = True
            elif kind == "started":
                self.rendezvous_done = True
            elif kind == "over":
                self.ended += 1
                self.worker_joined = self.rendezvous_done = False
            elif kind == "members":
                self.rendezvous_done = True
                self.members = set(value.split())
            elif kind == "lost":
                self.lost = self.lost or value
        return bool(data)
