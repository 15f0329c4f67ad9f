"""Follows the processes of a running job: what each does in a second, and who is lost."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from tf_byteps.metrics.finding import addresses_of
from tf_byteps.metrics.local import LocalJob, LocalSocket
from tf_byteps.metrics.process_rows import (
    Identity,
    Process,
    identity_of,
    scheduler_row,
    server_row,
    worker_row,
)
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
from tf_byteps.metrics.rows import LOST, RUNS, View
from tf_byteps.rendezvous.messages import Address

# With a second between looks a stopped process shows in less than two.
ANSWER_SECONDS = 0.8
# A process of this host loads what it needs for an answer when it is asked the first time.
_FIRST_ANSWER_SECONDS = 4.0
# Processes that come, or come back, are looked for so often.
_SEARCH_SECONDS = 5.0
# One that was replaced between two looks has no row that could say that it was lost.
_REPLACED_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class _Replaced:
    """A process that is lost, and whose places others have taken; seen so at a time."""

    identity: Identity
    places: tuple[Place, ...]
    when: float


class Watch:
    """The processes of a job, as `look` finds them.

    Args:
        given: a job on this host; or numeric addresses: a host's processes are at the ports from
            each of them on.
    """

    def __init__(self, given: Sequence[Address | LocalJob]) -> None:
        self._found: dict[Address | LocalJob, Sequence[Direct]] = dict.fromkeys(given, ())
        self._is_local = any(isinstance(each, LocalJob) for each in given)
        self._processes: dict[Where, Process] = {}
        self._trouble: dict[Where, Silence] = {}
        self._search_at = 0.0
        self._replaced: list[_Replaced] = []
        self._job: tuple[Where, float] | None = None  # who told it first, and the number

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
        for address, answer in self._of_one_job(answers).items():
            known = self._processes.get(address)
            if isinstance(answer, Silence):
                if known is None:
                    self._trouble[address] = answer
                else:
                    known.take(answer)
                continue
            identity = identity_of(address, answer)
            if known is None and not answer.places:
                self._trouble[address] = Silence("serves metrics, but has not joined a job yet")
                continue
            if known is None:
                self._processes[address] = Process(address, answer)
            elif known.identity != identity:
                gone.append(known)
                self._processes[address] = Process(address, answer)
            else:
                known.take(answer)
                continue
            came.add(identity)
        self._note_replaced(came, gone)
        return self._view()

    def _of_one_job(
        self, answers: Mapping[Where, Reading | Silence]
    ) -> Mapping[Where, Reading | Silence]:
        """Those of the job whose process answered first; another one may use the same ports."""
        found: dict[Where, Reading | Silence] = {}
        for address, answer in answers.items():
            if isinstance(answer, Reading) and answer.places and "process_job" in answer.process:
                job = answer.process["process_job"]
                self._job = self._job or (address, job)
                if job != self._job[1]:
                    why = f"serves metrics of another job than {self._job[0]}"
                    answer = Silence(why, nobody_listens=address in self._processes)
            found[address] = answer
        return found

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
        here = {
            identity_of(a, each)[1:] for a, each in answers.items() if isinstance(each, Reading)
        }
        found = {
            address: answer
            for address, answer in found.items()
            if isinstance(answer, Silence) or identity_of(address, answer)[1:] not in here
        }
        for known in self._processes:
            if isinstance(known, RemoteProcess):
                found.setdefault(known, Silence("is not connected", nobody_listens=True))
        return found

    def _note_replaced(self, came: Set[Identity], gone: Sequence[Process]) -> None:
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
                    row = worker_row(process, place, lags.get(place[1]))
                elif place[0] == "server":
                    row = server_row(process, place, connections.get(place[1], 0))
                else:
                    row = scheduler_row(process, place)
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
