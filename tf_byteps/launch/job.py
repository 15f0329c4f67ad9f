"""A job: the processes that bpslaunch starts, watches, and ends together."""

from __future__ import annotations

import dataclasses
import re
import selectors
import signal
import time
from collections.abc import Iterable, Sequence
from typing import Self

from tf_byteps.errors import BytePSError
from tf_byteps.launch.caught_signals import CaughtSignals
from tf_byteps.launch.early_leavers import EarlyLeavers
from tf_byteps.launch.ending import LAST_WAIT_SECONDS, Ending
from tf_byteps.launch.failure_report import report
from tf_byteps.launch.hosts import is_local
from tf_byteps.launch.launcher import Launcher
from tf_byteps.launch.output import Choice, Screen, Stream
from tf_byteps.launch.plan import Task
from tf_byteps.launch.running_task import RunningTask, alive
from tf_byteps.launch.scheduler_reports import SchedulerReports
from tf_byteps.launch.summary import ExitSummaries, Tally

_TICK_SECONDS = 0.2
# How long servers and the scheduler may take to end by themselves after the last worker.
_FAREWELL_SECONDS = 15.0
_SCHEDULER_READY_SECONDS = 30.0
# How long a failed server waits for a worker that may be the cause.
_CAUSE_SECONDS = 1.0
# What the scheduler says of a process that was lost: it reports that to this one, too.
_LOSS = re.compile(r" ERROR tf_byteps: .* (ended without a goodbye|is lost): ")


class Job:
    """The processes of one job, from the first to the last.

    Use as a context manager: no process is left when it ends.

    Args:
        launcher: a `Launcher`.
        screen: a `Screen`; with one process only its lines have no prefix.
        verbose: say what is started.
        server_failover: the job goes on when a server fails, as long as there are others.
        server_restarts: how often a server that has failed then is started again, in all.
        choice: a `Choice` of which output goes where. Default: all to the screen.
    """

    _reports_losses = True  # a process that was lost is why the job has failed

    def __init__(
        self,
        launcher: Launcher,
        screen: Screen | None = None,
        verbose: bool = False,
        server_failover: bool = True,
        server_restarts: int = 0,
        choice: Choice | None = None,
    ) -> None:
        self._launcher = launcher
        self._screen = screen or Screen()
        self._verbose = verbose
        self._server_failover = server_failover
        self._server_restarts = server_restarts
        self._choice = choice or Choice()
        self._exit_summaries = ExitSummaries()
        self._began = time.monotonic()
        self._tally = Tally()
        self._tasks: list[RunningTask] = []
        self._first_failed: RunningTask | None = None
        self._suspect = None
        self._ending = Ending(self._tasks, self._screen, launcher.grace)
        self._selector = selectors.DefaultSelector()
        self._signals = CaughtSignals()
        self._reports = SchedulerReports()
        self._has_scheduler = False
        self._ended: list[RunningTask] = []  # in the order in which it was noticed
        self._early_leavers = EarlyLeavers(self._reports, self._screen)

    def __enter__(self) -> Self:
        self._signals.__enter__()
        self._selector.register(self._signals.descriptor, selectors.EVENT_READ, self._take_signals)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._kill_all()
        finally:
            self._exit_summaries.close()
            self._signals.__exit__()
            self._selector.close()
            self._reports.close()

    @property
    def report_descriptor(self) -> int:
        """Where the scheduler, before it is started, is told to write its reports."""
        return self._reports.scheduler_end

    def start_scheduler(self, task: Task, keep: Sequence[int] = ()) -> int:
        """Starts the scheduler and returns its port.

        Args:
            task: what to start.
            keep: further descriptors that it inherits.

        Returns:
            The port; 0 if a signal has ended the job meanwhile.

        Raises:
            BytePSError: it does not run.
        """
        self._has_scheduler = True
        scheduler = self.start(task, keep=(self.report_descriptor, *keep))
        self._reports.close_scheduler_end()
        self._selector.register(self._reports.descriptor, selectors.EVENT_READ, self._take_reports)
        deadline = time.monotonic() + _SCHEDULER_READY_SECONDS
        while not self._reports.port:
            self._step()
            if self._ending.interrupted_by:
                return 0
            if self._ending.has_begun or time.monotonic() > deadline:
                seconds = _SCHEDULER_READY_SECONDS
                why = f"it has reported no port in {seconds:.0f} s: is this host busy?"
                if scheduler.code is not None:
                    why = f"it ended with exit code {scheduler.code}: its own lines above say why"
                raise BytePSError(f"the scheduler did not start: {why}")
        return self._reports.port

    def start_all(self, tasks: Iterable[Task]) -> None:
        """Starts processes, until a signal comes or the job has failed."""
        for task in tasks:
            if self._ending.has_begun:
                return
            self.start(task)
            self._handle_events(0)

    def start(self, task: Task, keep: Sequence[int] = ()) -> RunningTask:
        """Starts one process; returns its `RunningTask`."""
        if self._verbose:
            self._screen.say(self._launcher.describe(task))
        log = self._choice.open_log(task, self._screen)
        if task.role == "worker" and is_local(task.host):
            task = dataclasses.replace(
                task, variables={**task.variables, **self._exit_summaries.variables}
            )
        process = self._launcher.start(task, keep)
        shows, reported = self._choice.shows(task), None
        if task.role == "scheduler" and self._reports_losses:
            reported = _LOSS
        running = RunningTask(task, process, self._screen, len(self._tasks), log, shows, reported)
        self._tasks.append(running)
        for stream in running.streams:
            self._selector.register(stream.descriptor, selectors.EVENT_READ, stream)
        return running

    def run(self) -> int:
        """Waits for the end of the job; returns the exit code of bpslaunch."""
        farewell = None
        has_workers = bool(self._alive(role="worker"))  # a host may run a server alone
        while self._alive():
            self._step()
            workers_ended = has_workers and self._workers_have_ended()
            if not self._ending.has_begun and workers_ended:
                farewell = farewell or time.monotonic()
                waited = time.monotonic() - farewell
                # Without a complete rendezvous servers and scheduler wait for nobody.
                if not self._reports.rendezvous_done or waited > _FAREWELL_SECONDS:
                    self._ending.ask(signal.SIGTERM)
        self._drain()
        if self._suspect is not None:
            self._blame(self._suspect[0])
        code = self._exit_code()
        self._summarize()
        return code

    def say(self, text: str) -> None:
        """Prints a line of bpslaunch's own."""
        self._screen.say(text)

    def _summarize(self) -> None:
        ended = self._tally.ended
        if ended:
            seconds = time.monotonic() - self._began
            where = f"{self._exit_summaries.text(ended)}{self._choice.where}"
            self.say(self._tally.text(seconds, where))

    def _note_failed(self, running: RunningTask) -> None:
        if not running.is_noted:
            running.is_noted = True
            self._tally.note_failed(running.task.label)

    def _workers_have_ended(self) -> bool:
        return not self._alive(role="worker")

    def _exit_code(self) -> int:
        if self._ending.interrupted_by:
            return 128 + self._ending.interrupted_by
        if self._early_leavers.missed is not None:
            return 1
        if self._first_failed is None:
            if self._has_scheduler:
                self._early_leavers.warn_if_nobody_joined()
            return 0
        failed = self._first_failed
        remark = self._launcher.remark(failed.task.host, failed.code or 0)
        is_alone = len(self._tasks) == 1
        for line in report(failed, self._reports.lost, self._ended, remark, is_alone):
            self._screen.say(line)
        return failed.code or 1

    def _alive(self, role: str | None = None) -> list[RunningTask]:
        return alive(self._tasks, role)

    def _step(self) -> None:
        """Waits a moment for something to happen, and handles it."""
        self._handle_events(_TICK_SECONDS)
        for running in self._tasks:
            for stream in running.streams:
                stream.flush()
        # Of those that end in one moment others have followed who was killed, and servers a worker.
        ended = [running for running in self._tasks if running.poll()]
        for running in sorted(ended, key=lambda r: (r.code <= 128, r.task.role != "worker")):
            if running.task.role == "worker":
                self._tally.note_worker(running.code)
            self._on_ended(running)
        if self._suspect is not None and self._first_failed is None:
            running, since = self._suspect
            is_alone = running.task.role != "worker" and not self._alive(role="worker")
            if time.monotonic() - since > _CAUSE_SECONDS or is_alone:
                self._blame(running)
        if not self._ending.has_begun and self._early_leavers.are_missed():
            self._ending.ask(signal.SIGTERM)
        self._ending.escalate()

    def _handle_events(self, seconds: float) -> None:
        """Output, signals and reports, waiting so long for the first."""
        for key, _ in self._selector.select(seconds):
            if isinstance(key.data, Stream):
                if not key.data.read():
                    self._selector.unregister(key.fd)
            else:
                key.data()

    def _on_ended(self, running: RunningTask) -> None:
        self._ended.append(running)
        if self._verbose:
            self._screen.say(f"{running.task.label} has ended with exit code {running.code}")
        self._early_leavers.note(running)
        if running.code == 0 or running.told_to_end:
            return
        if self._goes_on_without(running):
            self._note_failed(running)
            again = self._server_restarts > 0 and not self._ending.has_begun
            self._screen.say(
                f"{running.task.label} failed with exit code {running.code}; the job goes on with "
                f"the other servers" + (", and it is started again" if again else "")
            )
            if again:
                self._server_restarts -= 1
                self.start(running.task)
            return
        # A server and the scheduler end with code 1 when they have lost a worker, and so does a
        # worker that has lost a server. Its guard may tell a little later that it has failed.
        if running.code == 1 and self._may_have_followed(running):
            self._suspect = self._suspect or (running, time.monotonic())
        else:
            self._blame(running)

    def _may_have_followed(self, running: RunningTask) -> bool:
        if running.task.role != "worker":
            return bool(self._alive(role="worker"))
        return not self._server_failover and bool(self._alive(role="server"))

    def _goes_on_without(self, running: RunningTask) -> bool:
        is_needed = running.task.role != "server" or not self._alive(role="server")
        return self._server_failover and self._reports.rendezvous_done and not is_needed

    def _blame(self, running: RunningTask) -> None:
        if self._first_failed is None:
            self._note_failed(running)
            self._first_failed = running
        self._ending.ask(signal.SIGTERM)

    def _take_signals(self) -> None:
        for number in self._signals.take():
            if number == signal.SIGCHLD:
                continue
            if number == signal.SIGUSR1:  # a worker says what it waits for
                for running in self._alive(role="worker"):
                    running.tell(number)
                continue
            self._ending.interrupt(number)

    def _take_reports(self) -> None:
        ended = self._reports.ended
        if not self._reports.read():
            self._selector.unregister(self._reports.descriptor)
        if self._reports.ended > ended:
            self._early_leavers.renew(self._tasks)

    def _drain(self) -> None:
        """Prints what is left in the pipes of processes that have ended."""
        deadline = time.monotonic() + LAST_WAIT_SECONDS
        while any(isinstance(key.data, Stream) for key in self._selector.get_map().values()):
            if time.monotonic() > deadline:
                return  # a process that has left its guard holds the pipe
            self._step()

    def _kill_all(self) -> None:
        """For errors while it starts: leaves no process."""
        if self._alive():
            self._ending.kill()
        while self._alive():
            self._step()
        for running in self._tasks:
            running.close()
