"""A job whose processes are actors: starts them, waits for the workers, finds out who failed."""

import dataclasses
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, Self

import ray
from ray.exceptions import RayError

from tf_byteps.errors import BytePSError
from tf_byteps.launch.plan import Plan, Task
from tf_byteps.ray.actors import Process, Raised, Returned, Scheduler, Server, Worker, unpickled
from tf_byteps.ray.placement import Placement

_logger = logging.getLogger("tf_byteps")
_TICK_SECONDS = 1.0
# Before an error that may only follow from another process's end is taken for the cause. Ray
# notices the end of a process at once, that of a node a little later.
_CAUSE_SECONDS = 5.0
# What the scheduler reports of a job's begin may come later than a worker's result.
_EARLY_SECONDS = 5.0
_ANSWER_SECONDS = 120.0
# Servers and the scheduler end after the last worker.
_FAREWELL_SECONDS = 10.0

# How an actor's work has ended: a worker's, that of a server or scheduler, or by a loss.
Outcome = Returned | Raised | str | RayError


@dataclasses.dataclass
class Member:
    """A process of the job.

    Attributes:
        task: what it is.
        where: the address of its node; "" while that is not known.
        actor: Ray's handle of it.
    """

    task: Task
    where: str
    actor: Any

    def __str__(self) -> str:
        return f"{self.task.label} on {self.where}" if self.where else self.task.label


class RunningJob:
    """Use as a context manager: at its end no process is left.

    Args:
        plan: a `Plan`.
        placement: the `Placement` that it comes from.
        environment: variables that processes start with, which Ray shows on its dashboard. If there
            are some, Ray cannot use the processes that it keeps ready.
        variables: further ones, which an actor sets itself, and nobody else sees.
    """

    _scheduler: Member  # once it has begun

    def __init__(
        self,
        plan: Plan,
        placement: Placement,
        environment: Mapping[str, str],
        variables: Mapping[str, str],
    ) -> None:
        self._plan, self._placement = plan, placement
        self._environment, self._variables = environment, variables
        self._members: list[Member] = []
        self._port = 0
        # What an actor's method will return: the `Member`.
        self._pending: dict[ray.ObjectRef, Member] = {}
        self._results: dict[Any, bytes] = {}  # by rank
        self._first_return: float | None = None  # when the first worker has returned
        self._has_started = False  # all have come together

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        for member in self._members:
            ray.kill(member.actor)

    def run(self, call: bytes) -> list[Any]:
        """Runs all processes to their end.

        Args:
            call: see `Worker.run`.

        Returns:
            What the workers' functions returned, in the order of ranks.

        Raises:
            BytePSError: the job has failed.
        """
        shared = ray.put(call)
        address, scheduler = "", None
        if self._plan.needs_scheduler:
            address = self._placement.address_of("scheduler", 0)
            scheduler = self._place(self._plan.scheduler_task(address), Scheduler)
        # Ray starts all processes meanwhile.
        servers = [self._place(task, Server) for task in self._plan.server_tasks(address, 0)]
        workers = [self._place(task, Worker) for task in self._plan.worker_tasks(address, 0)]
        if scheduler is not None:
            self._begin_scheduler(scheduler)
        for member in servers:
            self._begin(member)
        for member in workers:
            self._begin(member, shared)
        while len(self._results) < self._plan.workers:
            self._take_next()
            self._look_for_early_return()
        self._say_farewell()
        return [unpickled(self._results[rank]) for rank in range(self._plan.workers)]

    def _place(self, task: Task, kind: type[Process]) -> Member:
        """Creates the actor of a process that has its place; returns the `Member`."""
        place = task.role, task.number
        options = self._placement.options(*place)
        return self._create(task, kind, options, self._placement.address_of(*place))

    def _create(
        self, task: Task, kind: type[Process], options: Mapping[str, Any], where: str = ""
    ) -> Member:
        """Creates an actor; returns the `Member`.

        Args:
            task: what it is to be.
            kind: its class.
            options: where it goes, see `Placement.options`.
            where: the address of its node, if that is known.
        """
        # The scheduler's port and reports are asked for while it runs.
        threads = {"max_concurrency": 4} if kind is Scheduler else {}
        started_with = {"runtime_env": {"env_vars": self._environment}} if self._environment else {}
        actor = ray.remote(kind).options(**started_with, **options, **threads).remote()
        member = Member(task, where, actor)
        self._members.append(member)
        return member

    def _begin(self, member: Member, *arguments: Any) -> None:
        """Has an actor do its work."""
        variables = {**self._variables, **member.task.variables}
        if self._port:
            variables["DMLC_PS_ROOT_PORT"] = str(self._port)
        self._pending[member.actor.run.remote(variables, *arguments)] = member

    def _begin_scheduler(self, scheduler: Member) -> None:
        """Returns when it has a port, which the others get."""
        self._scheduler = scheduler
        self._begin(scheduler)
        port = self._ask(scheduler.actor.port.remote())
        if port is None:
            failure = self._ask(next(iter(self._pending)))
            raise BytePSError(f"{scheduler} did not start: {failure}")
        self._port = port

    def _say_farewell(self) -> None:
        """Servers and the scheduler end by themselves."""
        if self._pending:
            ray.wait(list(self._pending), num_returns=len(self._pending), timeout=_FAREWELL_SECONDS)

    def _ask(self, answer: ray.ObjectRef) -> Any:
        """What the scheduler answers."""
        try:
            return ray.get(answer, timeout=_ANSWER_SECONDS)
        except RayError as error:
            raise self._first_lost(self._scheduler, error) from error

    def _take_next(self) -> None:
        """Waits a moment for a process to end, and handles it."""
        for member, outcome in self._wait():
            if isinstance(outcome, Raised):
                raise self._find_cause(member, outcome)
            if isinstance(outcome, RayError):
                self._check_needless(member, outcome)
            elif isinstance(outcome, Returned):
                self._results[member.task.number] = outcome.value
                self._first_return = self._first_return or time.monotonic()

    def _wait(self) -> Iterator[tuple[Member, Outcome]]:
        """Yields the member that has ended and its outcome, at most one pair."""
        ended, _ = ray.wait(list(self._pending), timeout=_TICK_SECONDS)
        for result in ended:
            member = self._pending.pop(result)
            try:
                yield member, ray.get(result)
            except RayError as error:
                yield member, error

    def _check_needless(self, member: Member, error: RayError) -> None:
        """A server that is lost while the job runs is replaced by the others."""
        servers = [m for m in self._pending.values() if m.task.role == "server"]
        if member.task.role != "server" or not servers or "started" not in self._reports():
            raise self._first_lost(member, error) from error
        _logger.warning("%s was lost; the job goes on with the other servers", member)

    def _find_cause(self, member: Member, raised: Raised) -> BytePSError:
        """The exception for the job's end, with who has failed first."""
        deadline = time.monotonic() + _CAUSE_SECONDS
        later = raised.may_follow
        while later and self._pending and time.monotonic() < deadline:
            for other, outcome in self._wait():
                if isinstance(outcome, RayError):
                    return self._first_lost(other, outcome)
                if isinstance(outcome, Raised) and not outcome.may_follow:
                    member, raised, later = other, outcome, False
        return has_raised(member, raised)

    def _first_lost(self, member: Member, error: RayError) -> BytePSError:
        """The exception for the job's end. A node that is lost takes several; a worker is named."""
        deadline = time.monotonic() + _CAUSE_SECONDS
        while member.task.role != "worker" and time.monotonic() < deadline:
            if not any(other.task.role == "worker" for other in self._pending.values()):
                break
            for other, outcome in self._wait():
                if isinstance(outcome, RayError) and other.task.role == "worker":
                    member, error = other, outcome
        return died(member, error)

    def _look_for_early_return(self) -> None:
        """Others would wait for a worker that has returned and was never in the job."""
        if not self._plan.needs_scheduler or self._first_return is None or self._has_started:
            return
        reports = self._reports()
        self._has_started = "started" in reports
        waited = time.monotonic() - self._first_return
        if "joined" in reports and not self._has_started and waited > _EARLY_SECONDS:
            numbers = ", ".join(map(str, sorted(self._results)))
            raise BytePSError(
                f"the job has failed: worker {numbers} returned before the job began, and others "
                f"wait: all workers must call tf_byteps.init() or make a BytePSStrategy"
            )

    def _reports(self) -> list[str]:
        return self._ask(self._scheduler.actor.reports.remote())


def has_raised(member: Member, raised: Raised) -> BytePSError:
    """The exception for the job's end when a worker's function has raised."""
    failure = BytePSError(f"the job has failed: {member} raised\n{raised.text}")
    if raised.error is not None:
        failure.__cause__ = unpickled(raised.error)
    return failure


def died(member: Member, error: RayError) -> BytePSError:
    """The same when a process was lost."""
    return BytePSError(f"the job has failed: {member} was lost: {error}")
