"""Workers that end well before the job has begun: they may never have meant to take part."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tf_byteps.launch.output import Screen
from tf_byteps.launch.running_task import RunningTask
from tf_byteps.launch.scheduler_reports import SchedulerReports

# From the end of a worker to the report that the job had begun before.
_EARLY_SECONDS = 5.0


class EarlyLeavers:
    """Those workers.

    Args:
        reports: what the scheduler has said.
        screen: where they are told of.

    Attributes:
        missed: one of them, for which others have waited.
    """

    def __init__(self, reports: SchedulerReports, screen: Screen) -> None:
        self.missed: RunningTask | None = None
        self._reports, self._screen = reports, screen
        self._left: list[tuple[RunningTask, float]] = []  # each with when

    def note(self, running: RunningTask) -> None:
        """A process has ended."""
        is_worker = running.task.role == "worker"
        if running.code == 0 and is_worker and not self._reports.rendezvous_done:
            self._left.append((running, time.monotonic()))

    def renew(self, tasks: Iterable[RunningTask]) -> None:
        """The job has ended in order: whoever calls `init` again may wait for those that left."""
        now = time.monotonic()
        workers = (running for running in tasks if running.task.role == "worker")
        self._left = [(running, now) for running in workers if running.code == 0]

    def are_missed(self) -> bool:
        """Whether the job cannot begin, as others wait for one of them; says so, once."""
        is_waiting = self._reports.worker_joined and not self._reports.rendezvous_done
        if not is_waiting or self.missed is not None:
            return False
        for running, since in self._left:
            # The scheduler may be about to report that the job has begun.
            if time.monotonic() - since > _EARLY_SECONDS:
                self.missed = running
                again = " again" if self._reports.ended else ""
                self._screen.say(
                    f"{running.task.label} has ended with exit code 0 before the job began{again}, "
                    "and others wait for it: all workers must call tf_byteps.init() or make a "
                    "BytePSStrategy"
                )
                return True
        return False

    def warn_if_nobody_joined(self) -> None:
        """At the end of a job that has a scheduler."""
        has_begun = self._reports.worker_joined or self._reports.ended > 0
        if self._left and not has_begun:
            self._screen.say(
                "no worker has joined the job: each has run alone. To train together, call "
                "tf_byteps.init() or make a BytePSStrategy"
            )
