"""What a process has to tell of itself: the engine's counters, by role."""

from __future__ import annotations

import threading
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tf_byteps import _engine, step_counters

if typing.TYPE_CHECKING:
    from tf_byteps.job import JobScheduler, SummationServer
    from tf_byteps.rendezvous.messages import Book

# A source's name, the values of its labels, and the engine's values.
Sample = tuple[str, tuple[Any, ...], Mapping[str, Any]]
Source = Callable[[], Sequence[Sample]]


def worker_source(joined: Callable[[], tuple[Book, int]]) -> Source:
    """The source of the worker in this process, empty before it has joined its job.

    Args:
        joined: returns the job and the worker's rank in it; called when it has joined.
    """

    def read() -> list[Any]:
        values = _engine.worker_counters()
        if not values:  # or it has left
            return []
        book, rank = joined()
        own = ("worker", rank)
        paths = [("path", (*own, p["server"], p["path"]), p) for p in values["paths"]]
        elsewhere = ("hosts", own, book.elsewhere(book.worker_hosts[rank]))
        steps = ("local_steps", own, step_counters.read())
        return [("worker", own, values), steps, *paths, elsewhere]

    return read


def server_source(server: SummationServer) -> Source:
    """The source of a `SummationServer`, empty before it has joined its job."""

    def read() -> list[Any]:
        values = server.totals()
        if values["rank"] is None:
            return []
        own = ("server", values["rank"])
        lags = [("lag", (*own, lag["rank"]), lag) for lag in values["arrival_lags"]]
        return [("server", own, values), *lags, ("hosts", own, server.elsewhere)]

    return read


def scheduler_source(scheduler: JobScheduler) -> Source:
    """The source of a `JobScheduler`, with the last events of each kind."""
    reader = scheduler.events.reader()
    last: dict[tuple[str, str], Sample] = {}
    lock = threading.Lock()  # requests come in threads

    def read() -> list[Any]:
        values = {"lost_servers": len(scheduler.lost_servers), "failed": bool(scheduler.failure)}
        own = ("scheduler", 0)
        with lock:
            for event in reader.take()[0]:
                role, rank = (event.fields.get(f"peer_{what}", "") for what in ("role", "rank"))
                labels = (*own, event.event, f"{role} {rank}".strip())
                last[event.event, str(role)] = ("event", labels, {"time": event.time})
            return [("scheduler", own, values), *last.values()]

    return read
