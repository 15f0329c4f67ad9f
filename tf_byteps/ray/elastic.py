"""An elastic job whose processes are actors: it goes on when nodes are lost, and grows with others.

Places for servers and for the least number of workers are reserved together. Further workers wait
for nodes with room, one by one, while the job runs. So do those that are started in the place of
lost ones.
"""

import contextlib
import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from tf_byteps.errors import BytePSError
from tf_byteps.launch.failures import RecentFailures
from tf_byteps.launch.hosts import Host
from tf_byteps.launch.plan import ElasticPlan
from tf_byteps.ray.actors import Raised, Returned, Scheduler, Server, Worker, own_address, unpickled
from tf_byteps.ray.placement import Placement, options_here
from tf_byteps.ray.running import Member, Outcome, RunningJob, died, has_raised

_logger = logging.getLogger("tf_byteps")
# Then the job begins without those that have found no room.
_PATIENCE_SECONDS = 30.0


@dataclasses.dataclass
class _Place:
    """Where a process of the job can be.

    Attributes:
        role: "worker" or "server".
        number: its number among those of the role.
        member: who is there.
        not_before: when the next one may be started there.
    """

    role: str
    number: int
    member: Member | None = None
    not_before: float = 0.0


class ElasticRayJob(RunningJob):
    """Use as a context manager: at its end no process is left.

    Args:
        plan: an `ElasticPlan`; its `workers` are reserved places.
        placement: a `Placement` of these.
        environment, variables: see `RunningJob`.
        more: options of the actors of further workers, as a list.
        max_failures: see `RayLauncher`.
    """

    def __init__(
        self,
        plan: ElasticPlan,
        placement: Placement,
        environment: Mapping[str, str],
        variables: Mapping[str, str],
        more: Sequence[Mapping[str, Any]],
        max_failures: int,
    ) -> None:
        super().__init__(plan, placement, environment, variables)
        self._more, self._worker_task = more, plan.worker_task
        workers = plan.workers + len(more)
        self._places = [_Place("server", number) for number in range(plan.servers)]
        self._places += [_Place("worker", number) for number in range(workers)]
        self._failures = RecentFailures(max_failures)
        # What tells where an actor is: the `Member`.
        self._arriving: dict[ray.ObjectRef, Member] = {}
        self._call: ray.ObjectRef | None = None
        self._address = ""
        self._next_number = 0
        self._failure: BytePSError | None = None  # the last one that counts
        self._is_over = False
        self._patient_until = float("inf")

    def run(self, call: bytes) -> list[Any]:
        """See `RunningJob.run`.

        Returns:
            What the function returned on each worker that was there at the end.
        """
        self._call = ray.put(call)
        self._address = own_address()
        task = self._plan.scheduler_task(self._address)
        self._begin_scheduler(self._create(task, Scheduler, options_here(), self._address))
        self._order(f"expect {self._number_of_workers()}")
        self._patient_until = time.monotonic() + _PATIENCE_SECONDS
        self._fill()
        while self._is_going_on():
            for member, outcome in self._wait():
                self._on_ended(member, outcome)
            self._see_who_is_there()
            self._fill()
        if self._failure is not None:
            raise self._failure
        self._say_farewell()
        return [unpickled(value) for _, value in sorted(self._results.items())]

    def _is_going_on(self) -> bool:
        """Whether a worker runs, or may run once more."""
        if any(member.task.role == "worker" for member in self._pending.values()):
            return True
        return not (self._results or self._is_over) and self._number_of_workers() > 0

    def _number_of_workers(self) -> int:
        """How many there may be at a time."""
        return sum(1 for place in self._places if place.role == "worker")

    def _fill(self) -> None:
        """Starts a process wherever one is missing."""
        if self._results:  # nobody comes into the job any more
            for member in list(self._arriving.values()):
                self._dismiss(member)
        if self._results or self._is_over:
            return
        now = time.monotonic()
        for place in self._places:
            if place.member is None and now >= place.not_before:
                place.member = self._start(place)
        if now > self._patient_until:
            self._patient_until = float("inf")
            self._begin_without_those_that_wait()

    def _start(self, place: _Place) -> Member:
        if place.role == "server":
            task = self._plan.server_tasks(self._address, self._port)[place.number]
            member = self._create(task, Server, self._placement.options("server", place.number))
            arguments = ()
        else:
            host = Host("ray", 1)  # Ray shows each worker its own GPUs
            number, self._next_number = self._next_number, self._next_number + 1
            task = self._worker_task(self._address, self._port, number, host, 0)
            member = self._create(task, Worker, self._options_of(place))
            arguments = (self._call,)
        self._arriving[member.actor.where.remote()] = member  # first: an actor does one at a time
        self._begin(member, *arguments)
        return member

    def _options_of(self, place: _Place) -> Mapping[str, Any]:
        if self._is_further(place):
            return self._more[place.number - self._plan.workers]
        return self._placement.options("worker", place.number)

    def _see_who_is_there(self) -> None:
        """Notes where actors are that have found room."""
        if not self._arriving:
            return
        arrived, _ = ray.wait(list(self._arriving), num_returns=len(self._arriving), timeout=0)
        for answer in arrived:
            member = self._arriving.pop(answer)
            with contextlib.suppress(RayError):  # `_wait` tells of it
                member.where = ray.get(answer)

    def _begin_without_those_that_wait(self) -> None:
        """The job has waited long enough for nodes with room for further workers."""
        further = {id(place.member) for place in self._places if self._is_further(place)}
        waiting = sum(1 for member in self._arriving.values() if id(member) in further)
        if not waiting:
            return
        workers = self._number_of_workers()
        _logger.warning(
            "Ray has no room for %d of %d workers yet: they will join when it has", waiting, workers
        )
        self._order(f"expect {workers - waiting}")

    def _is_further(self, place: _Place) -> bool:
        """Whether nothing is reserved for it."""
        return place.role == "worker" and place.number >= self._plan.workers

    def _order(self, line: str) -> None:
        self._scheduler.actor.order.remote(line)

    def _on_ended(self, member: Member, outcome: Outcome) -> None:
        if member.task.role == "scheduler":
            return self._on_scheduler_ended(outcome)
        # Others learn from its end that a worker is lost; what Ray cannot reach may live.
        ray.kill(member.actor)
        place = next((place for place in self._places if place.member is member), None)
        if place is not None:
            place.member = None
        if isinstance(outcome, Returned):
            if not self._results:
                self._failure = None  # the others have gone on
            number = member.task.number
            self._results[number if outcome.rank is None else outcome.rank, number] = outcome.value
        elif isinstance(outcome, RayError):
            self._on_failed(place, died(member, outcome), self._was_never_there(member, outcome))
        elif isinstance(outcome, Raised) and not outcome.is_farewell:
            self._on_failed(place, has_raised(member, outcome))
        elif isinstance(outcome, str) and outcome:  # a server's reason
            self._on_failed(place, BytePSError(f"{member} has ended: {outcome}"))

    def _was_never_there(self, member: Member, error: RayError) -> bool:
        """Whether its node was lost before its process ran."""
        is_arriving = member in self._arriving.values()
        return is_arriving and isinstance(error, RayActorError) and not error.actor_init_failed

    def _on_failed(
        self, place: _Place | None, failure: BytePSError, for_free: bool = False
    ) -> None:
        """Somebody else is to come in a while, unless that has failed too often.

        Args:
            place: a `_Place`, or None: it is not used any more.
            failure: the exception for the job's end, if it ends of this.
            for_free: whether it does not count.
        """
        self._failure = failure
        if place is None or self._results or self._is_over:
            return
        failures = 1 if for_free else self._failures.note((place.role, place.number))
        is_over = not for_free and self._failures.is_too_much(failures)
        if is_over and place.role == "server":  # the job needs all
            raise failure
        if is_over:
            self._places.remove(place)
        place.not_before = time.monotonic() + self._failures.seconds_to_wait(failures)
        then = f"not started again after {failures} failures" if is_over else "started again"
        _logger.warning("%s (elastic: it is %s)", failure, then)

    def _on_scheduler_ended(self, outcome: Outcome) -> None:
        """The job is over, or cannot go on."""
        self._is_over = True
        if isinstance(outcome, RayError):
            raise died(self._scheduler, outcome)
        if outcome and not self._results:
            raise BytePSError(f"the job has failed: {outcome}") from self._failure
        taking_part = set()
        for line in self._reports():
            if line.startswith("members "):
                taking_part = set(line.split()[1:])
        for member in list(self._pending.values()):
            if member.task.role == "worker" and str(member.task.number) not in taking_part:
                self._dismiss(member)

    def _dismiss(self, member: Member) -> None:
        """Ends a process that is not needed."""
        ray.kill(member.actor)
        self._pending = {run: other for run, other in self._pending.items() if other is not member}
        self._arriving = {
            where: other for where, other in self._arriving.items() if other is not member
        }
