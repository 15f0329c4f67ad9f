"""Follows the processes of a running job: what each does in a second, and who is lost."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence, Set
from typing import Any

from tf_byteps.metrics.finding import addresses_from
from tf_byteps.metrics.reading import Place, Reading, Silence, read_all
from tf_byteps.rendezvous.messages import Address

RUNS, SILENT, LOST = "runs", "silent", "lost"
# With a second between looks a stopped process shows in less than two.
ANSWER_SECONDS = 0.8
# Processes that come, or come back, are looked for so often.
_SEARCH_SECONDS = 5.0
# One that was replaced between two looks has no row that could say that it was lost.
_REPLACED_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Row:
    """A process in its role. What is not known, such as rates in the first second, is None.

    Attributes:
        role: "worker", "server" or "scheduler".
        rank: its rank in this role.
        address: where it serves its metrics.
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


@dataclasses.dataclass(frozen=True)
class Server(Row):
    """A server.

    Attributes:
        received_bytes_per_second: from workers.
        replied_bytes_per_second: to workers.
        rounds_per_second: rounds of parts that were summed.
        sum_bytes: memory for sums and finished rounds.
        connections: those of the workers that answer here.
    """

    received_bytes_per_second: float | None
    replied_bytes_per_second: float | None
    rounds_per_second: float | None
    sum_bytes: float | None
    connections: int | None


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

    @property
    def rows(self) -> list[Row]:
        """All."""
        return [*self.workers, *self.servers, *self.schedulers]


def total(rows: Iterable[Row], key: str) -> float | None:
    """The sum of an attribute over the processes that run; None if nobody knows it."""
    known = [getattr(row, key) for row in rows if row.state == RUNS]
    known = [value for value in known if value is not None]
    return sum(known) if known else None


# The host, the process's ID there, and when it was started.
_Identity = tuple[str, float | None, float | None]


def _identity(address: Address, answer: Reading) -> _Identity:
    known = answer.process
    return address.host, known.get("process_id"), known.get("process_start_time_seconds")


@dataclasses.dataclass(frozen=True)
class _Replaced:
    """A process that is lost, and whose places others have taken; seen so at a time."""

    identity: _Identity
    places: tuple[Place, ...]
    when: float


class _Process:
    """A process that has answered once."""

    def __init__(self, address: Address, first: Reading) -> None:
        self.address = address
        self.now, self._before = first, None
        self.state = RUNS

    @property
    def identity(self) -> _Identity:
        """Tells a process that has come to another port from one that has taken its place."""
        return _identity(self.address, self.now)

    def take(self, answer: Reading | Silence) -> None:
        """Its next answer."""
        if isinstance(answer, Silence):
            self.state = LOST if answer.nobody_listens else SILENT
            self._before = None
            return
        is_same = _identity(self.address, answer) == self.identity
        self._before = self.now if is_same and self.state == RUNS else None
        # Its places stay when it says goodbye, so that it is not forgotten before it has ended.
        self.now = answer if answer.places else dataclasses.replace(answer, places=self.now.places)
        self.state = RUNS

    def value(self, place: Place, name: str) -> float | None:
        """A gauge, or a counter's count."""
        if self.state != RUNS:
            return None
        return self.now.places[place].get((f"tf_byteps_{name}", ()))

    def rate(self, place: Place, name: str) -> float | None:
        """How much a counter has grown in a second."""
        if self._before is None or place not in self._before.places:
            return None
        key = (f"tf_byteps_{name}_total", ())
        return self._growth(self._before.places[place].get(key), self.now.places[place].get(key))

    def common(self, place: Place) -> dict[str, Any]:
        """What `Row` has."""
        used = "process_cpu_seconds_total"
        before = None if self._before is None else self._before.process.get(used)
        memory = self.now.process.get("process_resident_memory_bytes")
        return {
            "role": place[0],
            "rank": place[1],
            "address": str(self.address),
            "state": self.state,
            "memory_bytes": memory if self.state == RUNS else None,
            "cpu_share": self._growth(before, self.now.process.get(used)),
        }

    def _growth(self, before: float | None, now: float | None) -> float | None:
        if self._before is None or before is None or now is None or now < before:
            return None  # a counter begins anew in each membership epoch
        return (now - before) / (self.now.when - self._before.when)


class Watch:
    """The processes of a job, as `look` finds them.

    Args:
        given: numeric addresses; a host's processes are at the ports from each of them on.
    """

    def __init__(self, given: Sequence[Address]) -> None:
        self._given = given
        self._candidates = dict.fromkeys(a for first in given for a in addresses_from(first))
        self._processes: dict[Address, _Process] = {}
        self._trouble: dict[Address, Silence] = {}
        self._search_at = 0.0
        self._replaced: list[_Replaced] = []

    def look(self) -> View:
        """Asks all processes once; takes a second at most."""
        asked = list(self._processes)
        if time.monotonic() >= self._search_at:
            self._search_at = time.monotonic() + _SEARCH_SECONDS
            asked = [*dict.fromkeys([*asked, *self._candidates])]
        came, gone = set(), []
        for address, answer in read_all(asked, ANSWER_SECONDS).items():
            known = self._processes.get(address)
            if isinstance(answer, Silence):
                if known is None:
                    self._trouble[address] = answer
                else:
                    known.take(answer)
                continue
            identity = _identity(address, answer)
            if known is None and not answer.places:
                self._trouble[address] = Silence("serves metrics, but has not joined a job yet")
                continue
            if known is None:
                self._processes[address] = _Process(address, answer)
            elif known.identity != identity:
                gone.append(known)
                self._processes[address] = _Process(address, answer)
            else:
                known.take(answer)
                continue
            came.add(identity)
        self._note_replaced(came, gone)
        return self._view()

    def _note_replaced(self, came: Set[_Identity], gone: Sequence[_Process]) -> None:
        """In an elastic job others take the places of lost processes at once, and change ports.

        Args:
            came: who has been found at an address where it was not.
            gone: who has been where another one is now.
        """
        processes = self._processes.items()
        held = {place for _, p in processes if p.state == RUNS for place in p.now.places}
        lost = {address: p for address, p in processes if p.state == LOST}
        for address, process in lost.items():
            if process.identity in came:
                del self._processes[address]
            elif held.issuperset(process.now.places):
                del self._processes[address]
                gone = [*gone, process]
        now = time.monotonic()
        self._replaced += [_Replaced(p.identity, tuple(p.now.places), now) for p in gone]
        self._replaced = [
            each
            for each in self._replaced
            if each.identity not in came and now < each.when + _REPLACED_SECONDS
        ]
        if gone:
            self._search_at = 0.0  # at the next look: it may have gone to a port that is not known

    def _view(self) -> View:
        lags, connections, named = self._what_others_say()
        rows: dict[str, list[Any]] = {"worker": [], "server": [], "scheduler": []}
        for process in self._processes.values():
            for place in process.now.places:
                if place[0] == "worker":
                    row = _worker(process, place, lags.get(place[1]))
                elif place[0] == "server":
                    row = _server(process, place, connections.get(place[1], 0))
                else:
                    row = _scheduler(process, place)
                rows[row.role].append(row)
        for listed in rows.values():
            listed.sort(key=lambda row: (row.rank, row.address))
        seen = {(row.role, row.rank) for listed in rows.values() for row in listed}
        return View(
            rows["worker"],
            rows["server"],
            rows["scheduler"],
            sorted(named - seen),
            self._sentences(),
            sorted(self._events()),
            [(p, time.monotonic() - each.when) for each in self._replaced for p in each.places],
        )

    def _what_others_say(self) -> tuple[dict[int, float], dict[int, int], set[Place]]:
        """Lags of workers, connections to servers, and who takes part, as others name them."""
        lags: dict[int, float] = {}
        connections: dict[int, int] = {}
        named = set()
        for process in self._processes.values():
            samples = [s for part in process.now.places.values() for s in part.items()]
            for (name, labels), value in samples if process.state == RUNS else []:
                if name == "tf_byteps_arrival_lag_seconds":
                    (rank,) = labels
                    lags[rank] = max(lags.get(rank, 0.0), value)
                    named.add(("worker", rank))
                elif name == "tf_byteps_path_pushed_bytes_total":
                    rank, _ = labels
                    connections[rank] = connections.get(rank, 0) + 1
                    named.add(("server", rank))
        return lags, connections, named

    def _events(self) -> Iterable[tuple[float, str, str]]:
        for process in self._processes.values():
            for samples in process.now.places.values():
                for (name, labels), value in samples.items():
                    if name == "tf_byteps_scheduler_event_timestamp_seconds":
                        yield value, *labels

    def _sentences(self) -> list[str]:
        """What is wrong with the addresses that were given."""
        sentences = []
        for first in self._given:
            ports = addresses_from(first)
            if any(address in self._processes for address in ports):
                continue
            silences = [self._trouble[a] for a in ports if a in self._trouble]
            # What answers in a wrong way tells more than a closed port.
            there = [a for a in ports if a in self._trouble and not self._trouble[a].nobody_listens]
            address = there[0] if there else first
            if silences:
                sentences.append(f"{address} {self._trouble[address].why}")
        return sentences


def _step_time(process: _Process, place: Place) -> tuple[float | None, float | None]:
    """The mean time of the last steps, and the share of it that was exposed communication."""
    steps = process.rate(place, "steps")
    spent = process.rate(place, "step_seconds")
    if not steps or not spent:
        return None, None
    exposed = process.rate(place, "exposed_communication_seconds")
    is_known = exposed is not None and process.rate(place, "unmeasured_steps") == 0
    return spent / steps, exposed / spent if is_known else None


def _worker(process: _Process, place: Place, lag: float | None) -> Worker:
    step_seconds, exposed_share = _step_time(process, place)
    return Worker(
        **process.common(place),
        exchanges_per_second=process.rate(place, "exchanges_ended"),
        pushed_bytes_per_second=process.rate(place, "pushed_bytes"),
        pulled_bytes_per_second=process.rate(place, "pulled_bytes"),
        exchanging_share=process.rate(place, "exchanging_seconds"),
        step_seconds=step_seconds,
        exposed_share=exposed_share,
        in_flight_bytes=process.value(place, "in_flight_bytes"),
        credit_bytes=process.value(place, "credit_bytes"),
        queued_parts=process.value(place, "queued_parts"),
        lag_seconds=lag if process.state == RUNS else None,
        retried_parts=process.value(place, "retried_parts_total"),
    )


def _server(process: _Process, place: Place, connections: int) -> Server:
    return Server(
        **process.common(place),
        received_bytes_per_second=process.rate(place, "server_received_bytes"),
        replied_bytes_per_second=process.rate(place, "server_replied_bytes"),
        rounds_per_second=process.rate(place, "server_rounds"),
        sum_bytes=process.value(place, "server_sum_bytes"),
        connections=connections if process.state == RUNS else None,
    )


def _scheduler(process: _Process, place: Place) -> Scheduler:
    failed = process.value(place, "scheduler_failed")
    lost = process.value(place, "scheduler_lost_servers")
    return Scheduler(
        **process.common(place),
        failed=None if failed is None else bool(failed),
        lost_servers=None if lost is None else int(lost),
    )
