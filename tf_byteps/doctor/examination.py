"""Asks the agents of all hosts, in at most 30 seconds."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tf_byteps.doctor.facts import Facts
from tf_byteps.doctor.links import rounds
from tf_byteps.doctor.remote import HostError, Remote
from tf_byteps.errors import BytePSError
from tf_byteps.launch.hosts import Host
from tf_byteps.launch.launcher import Launcher

_START_SECONDS = 11.0  # ssh, and Python from a slow disk
_FACTS_UNTIL_SECONDS = 18.0  # all from the beginning
_LINKS_UNTIL_SECONDS = 27.0
_LISTEN_SECONDS = 3.0
_CLOCK_READINGS = 5
_DIRECTION_SECONDS = 0.5
# Of a link's measurement besides the two directions: three connections, and round trips.
_LINK_OVERHEAD_SECONDS = 0.2
_LEAST_DIRECTION_SECONDS = 0.05
_MOST_AT_ONCE = 64


@dataclasses.dataclass
class HostRow:
    """What is known of a host.

    Attributes:
        name: as -H has it.
        slots: its workers.
        error: why it cannot be examined, or "".
        is_unreachable: ssh failed.
        facts: see `facts.gather`; empty with an error.
        clock_offset: seconds by which its clock is ahead of this machine's; 0 with an error.
        clock_error: the offset may be wrong by so much, in seconds.
        address: where it listened, or "".
    """

    name: str
    slots: int
    error: str = ""
    is_unreachable: bool = False
    facts: Facts = dataclasses.field(default_factory=dict)
    clock_offset: float = 0.0
    clock_error: float = 0.0
    address: str = ""


@dataclasses.dataclass
class LinkRow:
    """What was measured between two hosts.

    Attributes:
        source: the host that connected.
        target: the host that listened.
        error: why nothing was measured, or "".
        values: see `links.measure`; empty with an error.
    """

    source: str
    target: str
    error: str = ""
    values: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Report:
    """All that was found.

    Attributes:
        hosts: in the order of -H.
        links: those that were measured, or should have been.
        seconds: how long it took.
        ports: at how many ports a job with these workers listens on each host.
    """

    hosts: list[HostRow]
    links: list[LinkRow]
    seconds: float = 0.0
    ports: dict[str, int] = dataclasses.field(default_factory=dict)


def examine(
    launcher: Launcher,
    hosts: Sequence[Host],
    scheduler_address: str,
    interface: str = "",
    ports: range = range(1),
) -> Report:
    """Examines hosts and the links between them.

    Args:
        launcher: starts processes on them.
        hosts: at least one.
        scheduler_address: of this machine; hosts listen at their address towards it.
        interface: name of a network interface to listen at instead, or "".
        ports: hosts listen at the first of these that is free; 0: any.

    Raises:
        BytePSError: not even ssh can be started.
    """
    return _Examination(launcher, hosts, scheduler_address, interface, ports).run()


class _Examination:
    def __init__(
        self,
        launcher: Launcher,
        hosts: Sequence[Host],
        scheduler_address: str,
        interface: str,
        ports: range,
    ) -> None:
        self._began = time.monotonic()
        self._launcher = launcher
        self._rows = [HostRow(host.name, host.slots) for host in hosts]
        self._hosts = hosts
        place = [ports.start, ports.stop]
        self._towards = {"towards": scheduler_address, "interface": interface, "ports": place}
        self._remotes: list[Remote] = []
        self._listening: dict[int, dict[str, Any]] = {}

    def run(self) -> Report:
        workers = min(_MOST_AT_ONCE, len(self._hosts))
        with ThreadPoolExecutor(workers) as pool:
            try:
                for number, host in enumerate(self._hosts):
                    self._remotes.append(Remote(self._launcher, host, number))
                list(pool.map(self._ask_host, range(len(self._hosts))))
                links = self._measure_links(pool)
            finally:
                list(pool.map(Remote.close, self._remotes))
        return Report(self._rows, links, time.monotonic() - self._began)

    def _left(self, until: float) -> float:
        """Seconds until so many have passed since the beginning."""
        return max(0.0, self._began + until - time.monotonic())

    def _ask_host(self, number: int) -> None:
        remote, row = self._remotes[number], self._rows[number]
        try:
            remote.ask("clock", self._left(_START_SECONDS))
            row.clock_offset, row.clock_error = read_clock(
                lambda: remote.ask("clock", self._left(_FACTS_UNTIL_SECONDS))
            )
            row.facts = remote.ask("facts", self._left(_FACTS_UNTIL_SECONDS))
        except BytePSError as error:
            row.error = str(error)
            row.is_unreachable = isinstance(error, HostError) and error.is_unreachable
            return
        try:
            listening = remote.ask("listen", _LISTEN_SECONDS, **self._towards)
        except BytePSError as error:
            self._listening[number] = {"error": f"{row.name} cannot listen: {error}"}
            return
        self._listening[number] = listening
        row.address = listening["address"]

    def _measure_links(self, pool: ThreadPoolExecutor) -> list[LinkRow]:
        able = sorted(self._listening)
        plan = rounds(len(able))
        if not plan:
            return []
        each = self._left(_LINKS_UNTIL_SECONDS) / len(plan)
        seconds = min(_DIRECTION_SECONDS, (each - _LINK_OVERHEAD_SECONDS) / 2)
        seconds = max(_LEAST_DIRECTION_SECONDS, seconds)
        found: list[LinkRow] = []
        for together in plan:
            links = [(able[source], able[target], seconds) for source, target in together]
            found += pool.map(self._measure_link, *zip(*links))
        return found

    def _measure_link(self, source: int, target: int, seconds: float) -> LinkRow:
        row = LinkRow(self._rows[source].name, self._rows[target].name)
        where, timeout = self._listening[target], self._left(_LINKS_UNTIL_SECONDS)
        if "error" in where:
            row.error = where["error"]
        elif timeout < 2 * seconds:
            row.error = "not measured: no time was left of the 30 s"
        else:
            try:
                row.values = self._remotes[source].ask("measure", timeout, **where, seconds=seconds)
            except BytePSError as error:
                place = f"{where['address']}:{where['port']}"
                row.error = f"{row.source} to {row.target} at {place}: {error}"
        return row


def read_clock(ask: Callable[[], float]) -> tuple[float, float]:
    """By how much another clock is ahead, and by how much that may be wrong; in seconds.

    The other clock is read at some time between question and answer; in the middle, for all that is
    known. The shortest of several round trips says it best.
    """
    best = (0.0, float("inf"))
    for _ in range(_CLOCK_READINGS):
        began, since = time.time(), time.perf_counter()
        there = ask()
        half = (time.perf_counter() - since) / 2
        if half < best[1]:
            best = (there - (began + half), half)
    return best
