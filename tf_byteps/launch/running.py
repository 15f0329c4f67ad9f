"""Starts the processes of a job, prints their output, and ends them together."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import selectors
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Self

from tf_byteps.errors import BytePSError
from tf_byteps.launch.hosts import Ssh, guarded, is_local, to_start_python
from tf_byteps.launch.output import Choice, LogFile, Screen, Stream, last_lines
from tf_byteps.launch.plan import Task
from tf_byteps.launch.summary import Farewells

_TICK_SECONDS = 0.2
# How long servers and the scheduler may take to end by themselves after the last worker.
_FAREWELL_SECONDS = 15.0
# From killing a process to no longer waiting for it.
_LAST_WAIT_SECONDS = 3.0
_SCHEDULER_READY_SECONDS = 30.0
# How long a failed server waits for a worker that may be the cause.
_CAUSE_SECONDS = 1.0
# From the end of a worker to the report that the job had begun before.
_EARLY_SECONDS = 5.0
# What a pipe of Linux holds before its reader comes.
_PIPE_BYTES = 1 << 16
_NAMED = 8  # of those that failed, in the summary

Process = subprocess.Popen[bytes]


class Launcher:
    """How processes are started on hosts.

    Args:
        environment: the variables that local processes inherit.
        remote_environment: those that remote processes get.
        ssh: an `Ssh`.
        grace: seconds from asking a process to end to killing it.
        secret: the job's, or None. It goes to remote processes as all variables do, through their
            guards' standard input: everybody on a machine can see ssh's command line.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        remote_environment: Mapping[str, str],
        ssh: Ssh,
        grace: float,
        secret: str | None = None,
    ) -> None:
        self.environment = environment
        self._secret = secret
        self._remote_environment = remote_environment
        self._ssh = ssh
        self.grace = grace

    def start(self, task: Task, keep: Sequence[int] = ()) -> Process:
        """Starts a task under a guard; returns the `Popen` of the guard or of ssh."""
        here = is_local(task.host)
        command = guarded(task.command, self.grace, keep, variables_by_stdin=not here)
        variables = {**(self.environment if here else self._remote_environment), **task.variables}
        if self._secret is not None:
            variables["BYTEPS_JOB_SECRET"] = self._secret
        if not here:
            command = self._ssh.command(task.host, command, to_start_python(variables))
        process = _popen(command, variables if here else None, task, keep)
        if not here and process.stdin is not None:
            _write_line(process.stdin, json.dumps(variables))
        return process

    def start_without_guard(self, task: Task) -> Process:
        """Starts a task that itself reads standard input, and ends when that ends.

        Its variables are on ssh's command line: they must be no secrets.
        """
        command = list(task.command)
        if is_local(task.host):
            return _popen(command, {**self.environment, **task.variables}, task)
        variables = {**to_start_python(self._remote_environment), **task.variables}
        return _popen(self._ssh.command(task.host, command, variables), None, task)

    def describe(self, task: Task) -> str:
        """What is started, for --verbose."""
        variables = " ".join(f"{name}={value}" for name, value in task.variables.items())
        return f"[{task.label}] on {task.host}: {variables} {' '.join(task.command)}"


def _popen(
    command: Sequence[str],
    variables: Mapping[str, str] | None,
    task: Task,
    keep: Sequence[int] = (),
) -> Process:
    """Starts a task's command, here or through ssh, which itself runs in our environment (None)."""
    try:
        return subprocess.Popen(
            command,
            env=variables,
            pass_fds=keep,
            bufsize=0,
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        hint = "" if is_local(task.host) else f", to start {task.label} on {task.host}"
        raise BytePSError(f"cannot run {command[0]}{hint}: {error.strerror}") from error


def _write_line(pipe: IO[bytes], text: str) -> None:
    """Writes a line at once, whether or not somebody reads it yet."""
    data = f"{text}\n".encode()
    if len(data) > _PIPE_BYTES:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, len(data))
    try:
        pipe.write(data)
    except BrokenPipeError:
        pass  # the process has ended already, and is about to be noticed


class RunningTask:
    """A started task."""

    def __init__(
        self,
        task: Task,
        process: Process,
        screen: Screen,
        number: int,
        log: LogFile | None = None,
        is_shown: bool = True,
    ) -> None:
        self.task = task
        self.process = process
        self.code: int | None = None
        self.told_to_end = False
        self.is_noted = False  # among those that failed
        self.last_lines = last_lines()
        self._log = log
        self.streams = [
            Stream(
                pipe.fileno(),
                screen,
                name,
                screen.prefix(task.label, number, name),
                self.last_lines,
                log,
                is_shown,
            )
            for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr))
        ]

    def tell(self, number: int) -> None:
        """Has a signal sent to the command, most often to end it."""
        if self.code is not None:
            return
        self.told_to_end = self.told_to_end or number != signal.SIGUSR1
        try:
            self.process.stdin.write(f"{signal.Signals(number).name}\n".encode())
        except BrokenPipeError:
            pass  # it is ending already

    def poll(self) -> bool:
        """Whether it has ended just now."""
        if self.code is not None or self.process.poll() is None:
            return False
        code = self.process.returncode
        self.code = code if code >= 0 else 128 - code
        return True

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr, self._log):
            if pipe is not None:
                pipe.close()


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
        self._farewells = Farewells()
        self._began = time.monotonic()
        self._worker_codes = []
        self._failed = Counter()  # labels of processes that ended badly, not because of others
        self._tasks: list[RunningTask] = []
        self._first_failed: RunningTask | None = None
        self._suspect = None
        self._interrupted_by = 0  # the signal, for which the workers are asked to end
        self._ending_since = None
        self._killed_since = None
        self._selector = selectors.DefaultSelector()
        self._signals, self._signals_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._report, report_in = os.pipe2(os.O_CLOEXEC)
        self._report_in: int | None = report_in
        self._has_scheduler = False
        self._worker_joined = False
        self._rendezvous_done = False
        self._left_early = []  # pairs of a worker that ended well before the job began, and when
        self._missed = None  # one of them, for which others have waited
        self._lost = ""  # whom the scheduler has lost, in a sentence
        self._members = set()  # of an elastic job: who takes part, by name

    def __enter__(self) -> Self:
        self._selector.register(self._signals, selectors.EVENT_READ, self._take_signals)
        handled = (
            signal.SIGCHLD,
            signal.SIGINT,
            signal.SIGTERM,
            signal.SIGHUP,
            signal.SIGUSR1,
        )
        self._handlers = {n: signal.signal(n, lambda *_: None) for n in handled}
        self._old_wakeup = signal.set_wakeup_fd(self._signals_in, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._kill_all()
        finally:
            self._farewells.close()
            signal.set_wakeup_fd(self._old_wakeup)
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            self._selector.close()
            for descriptor in (self._signals, self._signals_in, self._report):
                os.close(descriptor)
            if self._report_in is not None:
                os.close(self._report_in)

    @property
    def report_descriptor(self) -> int:
        """Where the scheduler, before it is started, is told to write its reports."""
        assert self._report_in is not None
        return self._report_in

    def start_scheduler(self, task: Task, keep: Sequence[int] = ()) -> int:
        """Starts the scheduler and returns its port.

        Args:
            task: what to start.
            keep: further descriptors that it inherits.

        Raises:
            BytePSError: it does not run.
        """
        self._has_scheduler = True
        self.start(task, keep=(self.report_descriptor, *keep))
        os.close(self.report_descriptor)
        self._report_in = None
        port = []
        self._selector.register(
            self._report, selectors.EVENT_READ, lambda: port.extend(self._take_report())
        )
        deadline = time.monotonic() + _SCHEDULER_READY_SECONDS
        while not port:
            self._step()
            if self._ending_since is not None or time.monotonic() > deadline:
                raise BytePSError("the scheduler did not start")
        return port[0]

    def start_all(self, tasks: Iterable[Task]) -> None:
        """Starts processes, until a signal comes or the job has failed."""
        for task in tasks:
            if self._ending_since is not None:
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
                task, variables={**task.variables, **self._farewells.variables}
            )
        process = self._launcher.start(task, keep)
        running = RunningTask(
            task, process, self._screen, len(self._tasks), log, self._choice.shows(task)
        )
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
            if self._ending_since is None and workers_ended:
                farewell = farewell or time.monotonic()
                waited = time.monotonic() - farewell
                # Without a complete rendezvous servers and scheduler wait for nobody.
                if not self._rendezvous_done or waited > _FAREWELL_SECONDS:
                    self._end(signal.SIGTERM)
        self._drain()
        code = self._exit_code()
        self._summarize()
        return code

    def say(self, text: str) -> None:
        """Prints a line of bpslaunch's own."""
        self._screen.say(text)

    def _summarize(self) -> None:
        if not self._worker_codes:
            return
        ended = len(self._worker_codes)
        well = self._worker_codes.count(0)
        noun = "worker" if ended == 1 else "workers"
        seconds = time.monotonic() - self._began
        steps = self._farewells.text(ended)
        self.say(
            f"{well} of {ended} {noun} ended with code 0, after {seconds:.1f} s{steps}"
            f"{self._choice.where}{self._who()}"
        )

    def _who(self) -> str:
        """Who has failed, for the summary."""
        named = [label if n == 1 else f"{label} ({n} times)" for label, n in self._failed.items()]
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        return f"; failed: {', '.join(named[:_NAMED])}{more}" if named else ""

    def _note_failed(self, running: RunningTask) -> None:
        if not running.is_noted:
            running.is_noted = True
            self._failed[running.task.label] += 1

    def _workers_have_ended(self) -> bool:
        return not self._alive(role="worker")

    def _exit_code(self) -> int:
        if self._interrupted_by:
            return 128 + self._interrupted_by
        if self._missed is not None:
            return 1
        if self._first_failed is None:
            self._warn_if_nobody_joined()
            return 0
        self._report_failure(self._first_failed)
        return self._first_failed.code or 1

    def _alive(self, role: str | None = None) -> list[RunningTask]:
        return [t for t in self._tasks if t.code is None and (role is None or t.task.role == role)]

    def _step(self) -> None:
        """Waits a moment for something to happen, and handles it."""
        self._handle_events(_TICK_SECONDS)
        # Workers first: of those that end in one moment a server has followed a worker.
        for running in sorted(self._tasks, key=lambda r: r.task.role != "worker"):
            for stream in running.streams:
                stream.flush()
            if running.poll():
                if running.task.role == "worker":
                    self._worker_codes.append(running.code)
                self._on_ended(running)
        if self._suspect is not None and self._first_failed is None:
            running, since = self._suspect
            if time.monotonic() - since > _CAUSE_SECONDS or not self._alive(role="worker"):
                self._blame(running)
        self._miss_who_left_early()
        self._escalate()

    def _handle_events(self, seconds: float) -> None:
        """Output, signals and reports, waiting so long for the first."""
        for key, _ in self._selector.select(seconds):
            if isinstance(key.data, Stream):
                if not key.data.read():
                    self._selector.unregister(key.fd)
            else:
                key.data()

    def _miss_who_left_early(self) -> None:
        """Ends a job that cannot begin: a worker has ended, well, and others wait for it."""
        if self._rendezvous_done or not self._worker_joined or self._missed is not None:
            return
        for running, since in self._left_early:
            # The scheduler may be about to report that the job has begun.
            if self._ending_since is None and time.monotonic() - since > _EARLY_SECONDS:
                self._missed = running
                self._screen.say(
                    f"{running.task.label} has ended with exit code 0 before the job began, and "
                    "others wait for it: all workers must call tf_byteps.init() or make a "
                    "BytePSStrategy"
                )
                self._end(signal.SIGTERM)

    def _warn_if_nobody_joined(self) -> None:
        if self._has_scheduler and self._left_early and not self._worker_joined:
            self._screen.say(
                "no worker has joined the job: each has run alone. To train together, call "
                "tf_byteps.init() or make a BytePSStrategy"
            )

    def _on_ended(self, running: RunningTask) -> None:
        if self._verbose:
            self._screen.say(f"{running.task.label} has ended with exit code {running.code}")
        if running.code == 0 and running.task.role == "worker" and not self._rendezvous_done:
            self._left_early.append((running, time.monotonic()))
        if running.code == 0 or running.told_to_end:
            return
        if self._goes_on_without(running):
            self._note_failed(running)
            again = self._server_restarts > 0 and self._ending_since is None
            self._screen.say(
                f"{running.task.label} failed with exit code {running.code}; the job goes on with "
                f"the other servers" + (", and it is started again" if again else "")
            )
            if again:
                self._server_restarts -= 1
                self.start(running.task)
            return
        # A server and the scheduler end with code 1 when they have lost a worker. Its guard may
        # tell a little later than they that it has failed.
        if running.task.role != "worker" and running.code == 1 and self._alive(role="worker"):
            self._suspect = self._suspect or (running, time.monotonic())
        else:
            self._blame(running)

    def _goes_on_without(self, running: RunningTask) -> bool:
        is_needed = running.task.role != "server" or not self._alive(role="server")
        return self._server_failover and self._rendezvous_done and not is_needed

    def _blame(self, running: RunningTask) -> None:
        if self._first_failed is None:
            self._note_failed(running)
            self._first_failed = running
        self._end(signal.SIGTERM)

    def _end(self, number: int, role: str | None = None) -> None:
        """Asks processes to end, all or those of a role; who does not is killed later."""
        if self._ending_since is None:
            self._ending_since = time.monotonic()
        for running in self._alive(role):
            running.tell(number)

    def _escalate(self) -> None:
        now = time.monotonic()
        if self._interrupted_by and not self._alive(role="worker"):
            self._end_rest(now)
        if self._killed_since is not None:
            if now - self._killed_since > _LAST_WAIT_SECONDS:
                for running in self._alive():  # ssh to a host that does not answer any more
                    running.process.kill()
        elif self._ending_since is not None and now - self._ending_since > self._launcher.grace:
            names = ", ".join(r.task.label for r in self._alive() if r.told_to_end)
            if names:
                self._screen.say(
                    f"killing what has not ended in {self._launcher.grace:g} s: {names}"
                )
            self._kill(only_told=True)

    def _end_rest(self, now: float) -> None:
        """The workers have ended: asks those that they needed, which get a grace of their own."""
        rest = [running for running in self._alive() if not running.told_to_end]
        for running in rest:
            running.tell(signal.SIGTERM)
        if rest:
            self._ending_since, self._killed_since = now, None

    def _kill(self, only_told: bool = False) -> None:
        self._killed_since = self._killed_since or time.monotonic()
        for running in self._alive():
            if running.told_to_end or not only_told:
                running.tell(signal.SIGKILL)

    def _take_signals(self) -> None:
        for number in os.read(self._signals, 64):
            if number == signal.SIGCHLD:
                continue
            if number == signal.SIGUSR1:  # a worker says what it waits for
                for running in self._alive(role="worker"):
                    running.tell(number)
                continue
            if self._interrupted_by:
                self._screen.say("killing all processes")
                self._kill()
                continue
            name = signal.Signals(number).name
            self._interrupted_by = number
            self._screen.say(f"{name}: ending all processes; once more kills them")
            # They tell of workers that leave without a goodbye, as those were asked to.
            for running in self._tasks:
                if running.task.role != "worker":
                    for stream in running.streams:
                        stream.hide()
            # The others are needed by workers that finish a step and save before they end.
            self._end(number, "worker" if self._alive(role="worker") else None)

    def _take_report(self) -> Iterator[int]:
        """Reads the scheduler's reports; yields its port."""
        lines = os.read(self._report, 1024).decode()
        if not lines:
            self._selector.unregister(self._report)
        for line in lines.splitlines():
            if line == "started":
                self._rendezvous_done = True
            elif line == "joined":
                self._worker_joined = True
            elif line.startswith("lost "):
                self._lost = self._lost or line.removeprefix("lost ")
            elif line.startswith("members "):
                self._rendezvous_done = True
                self._members = set(line.split()[1:])
            else:
                yield int(line.removeprefix("port "))

    def _drain(self) -> None:
        """Prints what is left in the pipes of processes that have ended."""
        deadline = time.monotonic() + _LAST_WAIT_SECONDS
        while any(isinstance(key.data, Stream) for key in self._selector.get_map().values()):
            if time.monotonic() > deadline:
                return  # a process that has left its guard holds the pipe
            self._step()

    def _kill_all(self) -> None:
        """For errors on the way: leaves no process."""
        if self._alive():
            self._kill()
        while self._alive():
            self._step()
        for running in self._tasks:
            running.close()

    def _report_failure(self, failed: RunningTask) -> None:
        how = f"exit code {failed.code}"
        if failed.code > 128 and failed.code - 128 in set(signal.Signals):
            how += f" ({signal.Signals(failed.code - 128).name})"
        if self._lost and not self._lost.startswith(f"{failed.task.label} "):
            self._screen.say(f"the job has failed: {self._lost}")
        self._screen.say(f"{failed.task.label} failed first, with {how}")
        if not is_local(failed.task.host) and failed.code == 255:
            self._screen.say(f"255 is also what ssh to {failed.task.host} gives if it fails")
        if len(self._tasks) > 1 and failed.last_lines:
            self._screen.say(f"the last lines of {failed.task.label}:")
            for line in failed.last_lines:
                self._screen.say(f"  {line}")
