"""Runs a job whose workers may die, come and go: bpslaunch --min-np."""

from __future__ import annotations

import os
import time
import typing
from typing import Any

from tf_byteps.launch.discovery import FixedHosts, HostScript
from tf_byteps.launch.failures import FAILURE_SECONDS, RecentFailures
from tf_byteps.launch.hosts import Host
from tf_byteps.launch.job import Job
from tf_byteps.launch.plan import ElasticPlan

if typing.TYPE_CHECKING:
    from tf_byteps.launch.launcher import Launcher
    from tf_byteps.launch.running_task import RunningTask


class Place:
    """One worker's place on a host."""

    def __init__(self, host: Host, slot: int) -> None:
        self.host, self.slot = host, slot
        self.running: RunningTask | None = None
        self.not_before = 0.0


class ElasticJob(Job):
    """A `Job` that starts a worker wherever one is missing.

    Args:
        launcher: see `Job`.
        plan: an `ElasticPlan`.
        discovery: a `FixedHosts` or `HostScript`.
        most: the largest number of workers at a time, or None.
        host_failures: a host whose workers have failed so often in `FAILURE_SECONDS` is not used
            any more; 0: however often they fail.
        **settings: see `Job`.
    """

    _reports_losses = False

    def __init__(
        self,
        launcher: Launcher,
        plan: ElasticPlan,
        discovery: FixedHosts | HostScript,
        most: int | None,
        host_failures: int,
        **settings: Any,
    ) -> None:
        super().__init__(launcher, **settings)
        self._plan, self._discovery, self._most = plan, discovery, most
        self._failures = RecentFailures(host_failures)  # of hosts
        self._blocked = set()
        self._places = []
        self._leaving = set()  # numbers of workers
        self._next_number = 0
        self._has_finished = False  # a worker has, or the scheduler says that the job is over
        self._has_ended_well = False  # a worker has, with code 0
        self._last_failed: RunningTask | None = None
        self._address: tuple[str, int] | None = None
        self._is_alone = False
        orders, self._orders_out = os.pipe2(os.O_CLOEXEC)
        self._orders: int | None = orders
        os.set_blocking(self._orders_out, False)

    def __exit__(self, *details: object) -> None:
        self._address = None  # nothing is started any more
        try:
            super().__exit__(*details)
        finally:
            self._discovery.close()
            for descriptor in (self._orders, self._orders_out):
                if descriptor is not None:
                    os.close(descriptor)

    def begin(self, address: str, is_alone: bool) -> None:
        """Starts everything.

        Args:
            address: of this machine, for all hosts.
            is_alone: whether other hosts cannot use that address.
        """
        self._is_alone = is_alone
        orders = self._orders
        assert orders is not None  # it begins once
        task = self._plan.scheduler_task(address, self.report_descriptor, orders)
        port = self.start_scheduler(task, keep=(orders,))
        os.close(orders)
        self._orders = None
        if self._ending.has_begun:
            return
        for server in self._plan.server_tasks(address, port):
            self.start(server)
        self._address = address, port
        self._tend()

    def _step(self) -> None:
        super()._step()
        if self._address is not None and not self._ending.has_begun:
            self._tend()

    def _tend(self) -> None:
        """Lets workers go from hosts that are not listed any more, and starts those missing."""
        self._follow(self._discovery.poll())
        self._forget_ended()
        now = time.monotonic()
        if not self._has_finished:
            for place in self._places:
                if place.running is None and now >= place.not_before and self._has_room(place):
                    self._start_worker(place)
        if self._last_failed is not None and self._is_hopeless():
            self._blame(self._last_failed)

    def _follow(self, hosts: list[Host]) -> None:
        usable = filter(self._can_reach_us, hosts)
        wanted = {(host.name, slot): host for host in usable for slot in range(host.slots)}
        for place in list(self._places):
            host = wanted.pop((place.host.name, place.slot), None)
            if host is not None:
                place.host = host
            elif place.running is None:
                self._places.remove(place)
            elif place.running.task.number not in self._leaving:
                self._let_go(place, place.running)
        self._places += [Place(host, slot) for (_, slot), host in wanted.items()]

    def _can_reach_us(self, host: Host) -> bool:
        """The scheduler's address was chosen for the hosts that were listed first."""
        if host.is_local or not self._is_alone:
            return True
        if host.name not in self._blocked:
            self._screen.say(
                f"{host.name} is not used: it cannot reach the scheduler at {self._address[0]}, as "
                f"only this machine was listed at first; start bpslaunch with --scheduler-host"
            )
        self._blocked.add(host.name)
        return False

    def _let_go(self, place: Place, running: RunningTask) -> None:
        number = running.task.number
        self._screen.say(f"worker {number} will leave {place.host.name} at the next commit")
        self._leaving.add(number)
        self._order(f"leave {number}")

    def _has_room(self, place: Place) -> bool:
        working = sum(1 for p in self._places if p.running is not None)
        return place.host.name not in self._blocked and (not self._most or working < self._most)

    def _start_worker(self, place: Place) -> None:
        assert self._address is not None  # the scheduler runs
        number, self._next_number = self._next_number, self._next_number + 1
        task = self._plan.worker_task(*self._address, number, place.host, place.slot)
        if self._reports.rendezvous_done:
            self._screen.say(f"starting worker {number} on {place.host.name}")
        place.running = self.start(task)
        self._tell_expected()

    def _tell_expected(self) -> None:
        self._order(f"expect {sum(1 for place in self._places if place.running is not None)}")

    def _order(self, text: str) -> None:
        try:
            os.write(self._orders_out, f"{text}\n".encode())
        except (BlockingIOError, BrokenPipeError):
            pass  # the scheduler has ended, or is about to be noticed

    def _on_ended(self, running: RunningTask) -> Any:
        role = running.task.role
        if role == "worker":
            return self._on_worker_ended(running)
        if role == "server" and running.code != 0 and not self._ending.has_begun:
            self._note_failed(running)
            self._screen.say(f"{running.task.label} failed with exit code {running.code}")
            if self._count_failure(running) is not None:
                self.start(running.task)
                return
        if role == "scheduler" and not running.told_to_end:
            if running.code != 0:
                return self._blame(running)
            self._has_finished = True
            self._end_others()
        super()._on_ended(running)

    def _end_others(self) -> None:
        """The job is over: workers that take no part are not needed, as those that come, and those
        that were given up because they are stopped."""
        for running in self._alive(role="worker"):
            if str(running.task.number) not in self._reports.members:
                self._ending.ask_apart(running)

    def _on_worker_ended(self, running: RunningTask) -> None:
        place = next((p for p in self._places if p.running is running), None)
        if self._verbose:
            self._screen.say(f"{running.task.label} has ended with exit code {running.code}")
        if place is not None:
            place.running = None
        if running.code == 0:
            self._has_ended_well |= running.task.number not in self._leaving
            self._has_finished |= self._has_ended_well
            return
        if running.told_to_end or self._ending.has_begun:
            return
        if running.task.number in self._leaving:
            return  # its host may have gone at once
        self._last_failed = running
        self._note_failed(running)
        self._screen.say(
            f"{running.task.label} on {running.task.host} failed with exit code {running.code}"
        )
        if self._has_finished:  # nobody takes its place
            self._first_failed = self._first_failed or running
        else:
            delay = self._count_failure(running)
            if place is not None and delay is not None:
                place.not_before = time.monotonic() + delay
        self._tell_expected()

    def _count_failure(self, running: RunningTask) -> float | None:
        """Seconds until its host may be used again; None: it is not used any more."""
        host = running.task.host
        failures = self._failures.note(host)
        if self._failures.is_too_much(failures) and host not in self._blocked:
            self._screen.say(
                f"{host} is not used any more: {failures} of its processes have failed in "
                f"{FAILURE_SECONDS:.0f} s (--host-failures)"
            )
            self._blocked.add(host)
        return None if host in self._blocked else self._failures.seconds_to_wait(failures)

    def _is_hopeless(self) -> bool:
        """Whether no worker is there and none can be started any more."""
        if self._has_finished or self._discovery.may_change:
            return False
        usable = [place for place in self._places if place.host.name not in self._blocked]
        return not usable and not self._alive(role="worker")

    def _exit_code(self) -> int:
        if not self._has_ended_well:  # the scheduler takes workers' word for it that they are done
            self._first_failed = self._first_failed or self._last_failed
        return super()._exit_code()

    def _workers_have_ended(self) -> bool:
        return self._has_finished and super()._workers_have_ended()

    def _forget_ended(self) -> None:
        """Closes the pipes of processes that have ended: there may be many in a long job."""
        open_pipes = set(self._selector.get_map())
        for running in list(self._tasks):
            pipes = {stream.descriptor for stream in running.streams}
            if running.code is not None and not pipes & open_pipes:
                running.close()
                self._tasks.remove(running)
