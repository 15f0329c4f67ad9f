"""Adds up what all processes of a job count, so that one endpoint tells of the whole job."""

from __future__ import annotations

import ipaddress
import threading
import time
import typing
from collections.abc import Mapping, Sequence

from tf_byteps.metrics.names import ADDED_GROUPS, COUNTER, METRICS
from tf_byteps.metrics.reading import Place, Reading, read_all
from tf_byteps.metrics.sources import Sample, Source
from tf_byteps.rendezvous.host import host_id

if typing.TYPE_CHECKING:
    from tf_byteps.config import Config
    from tf_byteps.job import JobScheduler
    from tf_byteps.rendezvous.messages import Address, Join

_ANSWER_SECONDS = 1.0
# However often somebody asks the scheduler: it asks all others no more often.
_KEPT_SECONDS = 1.0
_COUNTERS = {m.name for m in METRICS if m.source in ADDED_GROUPS and m.kind == COUNTER}
_GAUGES = {m.name for m in METRICS if m.source in ADDED_GROUPS and m.kind != COUNTER}


def job_source(scheduler: JobScheduler, config: Config) -> Source:
    """The source of the job's sums: reads the other processes' endpoints when it is asked.

    Args:
        scheduler: knows who has joined, and where they serve their metrics.
        config: the `Config` of the scheduler's process.
    """
    own_host = host_id(config)
    added = JobSum()
    lock = threading.Lock()  # requests come in threads
    kept: list[Sample] = []
    kept_until = 0.0

    def read() -> Sequence[Sample]:
        nonlocal kept, kept_until
        with lock:
            if time.monotonic() >= kept_until:
                where = {join.participant: _reachable(join, own_host) for join in scheduler.joins}
                answers = read_all(dict.fromkeys(filter(None, where.values())), _ANSWER_SECONDS)
                found = {name: address and answers[address] for name, address in where.items()}
                values = added.take(
                    {n: answer for n, answer in found.items() if isinstance(answer, Reading)}, found
                )
                kept = [("job", ("scheduler", 0), values)]
                kept_until = time.monotonic() + _KEPT_SECONDS
            return kept

    return read


def _reachable(join: Join, own_host: str) -> Address | None:
    """Where the scheduler can read a process's metrics, if it can."""
    address = join.metrics
    if address is None:
        return None
    try:
        is_loopback = ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        return None
    return None if is_loopback and join.host_id != own_host else address


class JobSum:
    """Sums over processes that come and go. Sums of counters never fall."""

    def __init__(self) -> None:
        self._ended = dict.fromkeys(_COUNTERS, 0.0)
        self._last: dict[tuple[str, Place], dict[str, float]] = {}

    def take(
        self, readings: Mapping[str, Reading], present: Mapping[str, object]
    ) -> dict[str, float]:
        """Takes what processes have answered.

        Args:
            readings: by a name that each process keeps.
            present: the names of all processes of the job.

        Returns:
            The values of the group "job", by their keys.
        """
        gauges = dict.fromkeys(_GAUGES, 0.0)
        for name, reading in readings.items():
            for place, samples in reading.places.items():
                values = {key: value for (key, labels), value in samples.items() if not labels}
                self._count(name, place, {k: v for k, v in values.items() if k in _COUNTERS})
                for key in _GAUGES & values.keys():
                    gauges[key] += values[key]
        for name, place in list(self._last):
            if name not in present:  # somebody has its place, or another epoch has begun
                self._end(self._last.pop((name, place)))
        counters = dict(self._ended)
        for values in self._last.values():
            for key, value in values.items():
                counters[key] += value
        read = sum(1 for reading in readings.values() if reading.places)
        numbers = {"read_processes": read, "unread_processes": len(present) - read}
        return {**numbers, **gauges, **counters}

    def _count(self, name: str, place: Place, values: dict[str, float]) -> None:
        before = self._last.get((name, place), {})
        if any(value < before.get(key, 0.0) for key, value in values.items()):
            self._end(before)  # it counts from 0 again
        if values:
            self._last[name, place] = values

    def _end(self, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            self._ended[key] += value
