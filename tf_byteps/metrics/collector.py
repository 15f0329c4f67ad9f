"""Asks the engine for its counters when Prometheus asks for metrics."""

from __future__ import annotations

import threading
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from tf_byteps import _engine
from tf_byteps.metrics.names import COMMON_LABELS, COUNTER, GROUPS, METRICS

if typing.TYPE_CHECKING:
    from tf_byteps.job import JobScheduler, SummationServer

# A source's name, the values of its labels, and the engine's values.
Sample = tuple[str, tuple[Any, ...], Mapping[str, Any]]
Source = Callable[[], Sequence[Sample]]


class Collector:
    """What the registry of prometheus_client calls at each scrape.

    Args:
        sources: functions that each return a list of (source, labels, values): one of `GROUPS`, the
            values of `COMMON_LABELS` and of the group's, and a dict of the engine's values.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """Yields a family for each metric that this process has."""
        found = {}
        for read in self._sources:
            for group, labels, values in read():
                found.setdefault(group, []).append((labels, values))
        for metric in METRICS:
            if metric.source not in found:
                continue
            kind = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
            names = (*COMMON_LABELS, *GROUPS[metric.source])
            family = kind(metric.name, metric.help, labels=names)
            for labels, values in found[metric.source]:
                family.add_metric(
                    [str(label) for label in labels], values[metric.key] * metric.scale
                )
            yield family


def worker_source(rank: Callable[[], int]) -> Source:
    """The source of the worker in this process, empty before it has joined its job.

    Args:
        rank: called when it has joined.
    """

    def read() -> list[Any]:
        values = _engine.worker_counters()
        if not values:  # or it has left
            return []
        own = ("worker", rank())
        paths = [("path", (*own, p["server"], p["path"]), p) for p in values["paths"]]
        return [("worker", own, values), *paths]

    return read


def server_source(server: SummationServer) -> Source:
    """The source of a `SummationServer`, empty before it has joined its job."""

    def read() -> list[Any]:
        values = server.totals()
        if values["rank"] is None:
            return []
        own = ("server", values["rank"])
        lags = [("lag", (*own, lag["rank"]), lag) for lag in values["arrival_lags"]]
        return [("server", own, values), *lags]

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
