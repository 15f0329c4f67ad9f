"""Follows the processes of a running job: what each does in a second, and who is lost."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from tf_byteps.metrics.finding import addresses_of
from tf_byteps.metrics.local import LocalJob, LocalSocket
from tf_byteps.metrics.reading import (
    Direct,
    Place,
    Reading,
    Silence,
    Where,
    read_all,
    read_elsewhere,
)
from tf_byteps.metrics.remote_processes import RemoteProcess
from tf_byteps.metrics.rows import LOST, RUNS, SILENT, Scheduler, Server, View, Worker
from tf_byteps.rendezvous.messages import Address

# With a second between looks a stopped process shows in less than two.
ANSWER_SECONDS = 0.8
# A process of this host loads what it needs for an answer when it is asked the first time.
_FIRST_ANSWER_SECONDS = 4.0
# Processes that come, or come back, are looked for so often.
_SEARCH_SECONDS = 5.0
# One that was replaced between two looks has no row that could say that it was lost.
_REPLACED_SECONDS = 60.0


# The host, the process's ID there, and when it was started.
_Identity = tuple[str, float | None, float | None]


def _identity(address: Where, answer: Reading) -> _Identity:
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

    def __init__(self, address: Where, first: Reading) -> None:
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
        given: a job on this host; or numeric addresses: a host's processes are at the ports from
            each of them on.
    """

    def __init__(self, given: Sequence[Address | LocalJob]) -> None:
        self._found: dict[Address | LocalJob, Sequence[Direct]] = dict.fromkeys(given, ())
        self._is_local = any(isinstance(each, LocalJob) for each in given)
        self._processes: dict[Where, _Process] = {}
        self._trouble: dict[Where, Silence] = {}
        self._search_at = 0.0
        self._replaced: list[_Replaced] = []

    def look(self) -> View:
        """Asks all processes once. Takes a second at most, but the first time, and where processes
        of this host and of others are silent: those of others are asked last."""
        asked = [each for each in self._processes if not isinstance(each, RemoteProcess)]
        timeout = ANSWER_SECONDS if asked or not self._is_local else _FIRST_ANSWER_SECONDS
        if self._is_local or time.monotonic() >= self._search_at:  # sockets are found at no cost
            self._search_at = time.monotonic() + _SEARCH_SECONDS
            self._found = {given: addresses_of(given) for given in self._found}
            asked = [*dict.fromkeys([*asked, *(a for each in self._found.values() for a in each)])]
        came, gone = set(), []
        direct = read_all(asked, timeout)
        answers: dict[Where, Reading | Silence] = {**direct, **self._read_elsewhere(direct)}
        for address, answer in answers.items():
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

    def _read_elsewhere(
        self, answers: Mapping[Direct, Reading | Silence]
    ) -> Mapping[RemoteProcess, Reading | Silence]:
        """What a scheduler on this host knows of other hosts.

        Args:
            answers: what came from the processes of this host.
        """
        found: dict[RemoteProcess, Reading | Silence] = {}
        for address, answer in answers.items():
            if isinstance(address, LocalSocket) and _is_scheduler(answer):
                found.update(read_elsewhere(address, ANSWER_SECONDS))
        # A job may take containers of one host for hosts, and their sockets are all here.
        here = {_identity(a, each)[1:] for a, each in answers.items() if isinstance(each, Reading)}
        found = {
            address: answer
            for address, answer in found.items()
            if isinstance(answer, Silence) or _identity(address, answer)[1:] not in here
        }
        for known in self._processes:
            if isinstance(known, RemoteProcess):
                found.setdefault(known, Silence("is not connected", nobody_listens=True))
        return found

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
        unseen = named - {(row.role, row.rank) for listed in rows.values() for row in listed}
        elsewhere = self._elsewhere(unseen)
        return View(
            rows["worker"],
            rows["server"],
            rows["scheduler"],
            sorted(unseen - elsewhere),
            self._sentences(),
            sorted(self._events()),
            [(p, time.monotonic() - each.when) for each in self._replaced for p in each.places],
            sorted(elsewhere),
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

    def _elsewhere(self, unseen: Set[Place]) -> Set[Place]:
        """Those of them that are on other hosts, where local sockets do not reach."""
        if not self._is_local:
            return set()
        found = set()
        for role in ("worker", "server"):
            name = f"elsewhere_{role}s"
            processes = self._processes.values()
            counts = [p.value(place, name) or 0 for p in processes for place in p.now.places]
            places = {place for place in unseen if place[0] == role}
            # Processes know only how many there are. Of more, some are lost, and who is not known.
            if len(places) <= max(counts, default=0):
                found |= places
        return found

    def _events(self) -> Iterable[tuple[float, str, str]]:
        for process in self._processes.values():
            for samples in process.now.places.values():
                for (name, labels), value in samples.items():
                    if name == "tf_byteps_scheduler_event_timestamp_seconds":
                        yield value, *labels

    def _sentences(self) -> list[str]:
        """What is wrong with what was given."""
        sentences = []
        for addresses in self._found.values():
            if any(address in self._processes for address in addresses):
                continue
            silent = [a for a in addresses if a in self._trouble]
            # What answers in a wrong way tells more than a closed port.
            silent.sort(key=lambda a: self._trouble[a].nobody_listens)
            if silent:
                sentences.append(f"{silent[0]} {self._trouble[silent[0]].why}")
        return sentences


def _is_scheduler(answer: Reading | Silence) -> bool:
    return isinstance(answer, Reading) and any(role == "scheduler" for role, _ in answer.places)


def _step_time(process: _Process, place: Place) -> tuple[float | None, float | None]:
    """The mean time of the last steps, and the share of it that was exposed communication."""
    steps = process.rate(place, "steps")
    spent = process.rate(place, "step_seconds")
    if not steps or not spent:
        return None, None
    exposed = process.rate(place, "exposed_communication_seconds")
    is_known = exposed is not None and process.rate(place, "unmeasured_steps") == 0
    return spent / steps, exposed / spent if is_known else None


def _staleness(process: _Process, place: Place) -> float | None:
    steps = process.rate(place, "asynchronous_steps")
    changes = process.rate(place, "stale_changes")
    return changes / steps if steps and changes is not None else None


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
        outer_rounds=process.value(place, "outer_rounds_total"),
        late_changes=process.value(place, "late_changes_total"),
        steps_since_round=process.value(place, "steps_since_outer_round"),
        saved_bytes=process.value(place, "saved_bytes_total"),
        divergence=process.value(place, "weight_divergence_ratio"),
        staleness=_staleness(process, place),
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
