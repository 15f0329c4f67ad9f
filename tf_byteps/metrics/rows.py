"""What bpstop knows of a job's processes at one moment."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from tf_byteps.metrics.reading import Place

RUNS, SILENT, LOST = "runs", "silent", "lost"


@dataclasses.dataclass(frozen=True)
class Row:
    """A process in its role. What is not known, such as rates in the first second, is None.

    Attributes:
        role: "worker", "server" or "scheduler".
        rank: its rank in this role.
        address: where it answers.
        state: "runs", "silent" (it is there, and does not answer) or "lost" (it is not there).
        memory_bytes: of the process, which may have several roles.
        cpu_share: how many processors it uses.
    """

    role: str
    rank: int
    address: str
    state: str
    memory_bytes: float | None
    cpu_share: float | None


@dataclasses.dataclass(frozen=True)
class Worker(Row):
    """A worker.

    Attributes:
        exchanges_per_second: exchanges of tensors that have ended.
        pushed_bytes_per_second: to servers.
        pulled_bytes_per_second: from servers.
        exchanging_share: the share of time with an exchange in flight.
        step_seconds: the mean time of the steps that have ended since the look before.
        exposed_share: the share of that time in which the steps only waited for sums.
        in_flight_bytes: pushed, and not taken in by a server yet.
        credit_bytes: how much may be in flight.
        queued_parts: parts that wait for credit.
        lag_seconds: how much later than the first its parts arrive, at the server that waits most.
        retried_parts: parts pushed again.
        outer_rounds: those that have ended, with local steps.
        row_sum_tensors: those whose rows servers add up.
        row_gather_tensors: those whose rows are gathered.
        late_changes: rounds that have ended without the worker, of a quorum.
        steps_since_round: local steps since the last one.
        saved_bytes: that local steps have not sent.
        divergence: of the worker's weights from the average, before the last outer round.
        staleness: the mean of the last asynchronous steps, in changes of others.
    """

    exchanges_per_second: float | None
    pushed_bytes_per_second: float | None
    pulled_bytes_per_second: float | None
    exchanging_share: float | None
    step_seconds: float | None
    exposed_share: float | None
    in_flight_bytes: float | None
    credit_bytes: float | None
    queued_parts: float | None
    lag_seconds: float | None
    retried_parts: float | None
    outer_rounds: float | None
    late_changes: float | None
    row_sum_tensors: float | None
    row_gather_tensors: float | None
    steps_since_round: float | None
    saved_bytes: float | None
    divergence: float | None
    staleness: float | None


@dataclasses.dataclass(frozen=True)
class Server(Row):
    """A server.

    Attributes:
        received_bytes_per_second: from workers.
        replied_bytes_per_second: to workers.
        rounds_per_second: rounds of parts that were summed.
        sum_bytes: memory for sums, finished rounds and tables.
        connections: those of the workers that answer here.
        lacking_table_blocks: blocks of tables whose rows it does not have, or not all.
    """

    received_bytes_per_second: float | None
    replied_bytes_per_second: float | None
    rounds_per_second: float | None
    sum_bytes: float | None
    connections: int | None
    lacking_table_blocks: float | None = None


@dataclasses.dataclass(frozen=True)
class Scheduler(Row):
    """The scheduler.

    Attributes:
        failed: whether the job has failed.
        lost_servers: how many are lost while training goes on.
    """

    failed: bool | None
    lost_servers: int | None


@dataclasses.dataclass(frozen=True)
class View:
    """A job at one moment.

    Attributes:
        workers, servers, schedulers: by rank.
        unseen: (role, rank) of processes that others name and that have not answered here: they
            are lost, or serve elsewhere.
        elsewhere: (role, rank) of those that are on other hosts than a job that was found here.
        trouble: a sentence for each address that was given and has no process of a job.
        events: what the scheduler tells of the job, in order: when, in seconds since 1970, the
            event's name, and to whom it has happened ("server 1", or "").
        replaced: (role, rank) of processes that were lost in the last minute and whose rank another
            one has, and how many seconds ago that was seen.
    """

    workers: Sequence[Worker]
    servers: Sequence[Server]
    schedulers: Sequence[Scheduler]
    unseen: Sequence[Place]
    trouble: Sequence[str]
    events: Sequence[tuple[float, str, str]] = ()
    replaced: Sequence[tuple[Place, float]] = ()
    elsewhere: Sequence[Place] = ()

    @property
    def rows(self) -> list[Row]:
        """All."""
        return [*self.workers, *self.servers, *self.schedulers]


def total(rows: Iterable[Row], key: str) -> float | None:
    """The sum of an attribute over the processes that run; None if nobody knows it."""
    known = [getattr(row, key) for row in rows if row.state == RUNS]
    known = [value for value in known if value is not None]
    return sum(known) if known else None
