"""Runs a test's functions as the workers of real jobs: real processes, sockets and variables.

    def sum_of_ranks():  # at the top of a test module
        tf_byteps.init()
        ...
        return something that JSON can hold

    def test_sum():
        assert run_workers(sum_of_ranks, workers=2, servers=1) == [1, 1]

The processes are those that bpslaunch starts, with the same variables. They import TensorFlow only
if the test's module or function does.
"""

import contextlib
import dataclasses
import importlib
import json
import os
import pathlib
import random
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time

import psutil

from benchmarks.sessions import within
from tests import fork_server, quick_start
from tf_byteps.launch.hosts import Host
from tf_byteps.launch.plan import TOPOLOGY, Plan
from tf_byteps.rendezvous.secret import new_secret

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Failures show soon in tests. BYTEPS_HOST_ID and others may be added by a test.
_DEFAULTS = {
    "BYTEPS_CONNECT_TIMEOUT": "20",
    "BYTEPS_RENDEZVOUS_TIMEOUT": "180",
    "BYTEPS_OPERATION_TIMEOUT": "60",
    "BYTEPS_SHUTDOWN_TIMEOUT": "20",
    "BYTEPS_RESTART_TIMEOUT": "0",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONUNBUFFERED": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


@dataclasses.dataclass
class Outcome:
    """How a process ended.

    Attributes:
        label: "worker 0", "server 0" or "scheduler".
        code: its exit code; negative: the signal that ended it; None: it did not end in time.
        output: what it printed, standard output and error together.
        result: what a worker's function returned.
    """

    label: str
    code: int | None
    output: str
    result: object = None


class Process:
    """A process of a test, with its output in a file."""

    def __init__(self, label, command, env, folder, pass_fds=(), suffix=""):
        self.label = label
        self._output = folder / f"{label.replace(' ', '-')}{suffix}.log"
        self.result_file = folder / f"{label.replace(' ', '-')}{suffix}.json"
        with open(self._output, "wb") as file:
            self.popen = fork_server.popen(
                command,
                cwd=ROOT,
                env={**env, "TESTS_RESULT_FILE": str(self.result_file)},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=pass_fds,
            )

    def output(self):
        return self._output.read_text(errors="replace")

    def wait_for_output(self, text, timeout=60, count=1):
        """Waits until the process has printed `text` so often."""

        def is_there():
            return self.output().count(text) >= count

        wait_until(lambda: is_there() or self.popen.poll() is not None, timeout)
        assert is_there(), f"{self.label} did not print {text!r}:\n{self.output()}"

    def kill(self, number=signal.SIGKILL):
        self.popen.send_signal(number)

    def outcome(self):
        result = None
        if self.result_file.exists():
            result = json.loads(self.result_file.read_text())
        return Outcome(self.label, self.popen.poll(), self.output(), result)


class Cluster:
    """A running job. Use as a context manager: at its end no process is left.

    Args:
        function: a function at the top of a module, which every worker calls.
        workers: their number.
        servers: number of server processes; 0: every worker hosts one.
        env: variables for all processes, or a function of a process's label that returns some.
            BYTEPS_JOB_SECRET is a new secret, as from bpslaunch; "" takes it away.
        args: what the function is called with; JSON must be able to hold it.
        place: a function of a process's label that returns the network namespace it runs in and
            its address there; None: all are in this one.
    """

    def __init__(self, function, workers=2, servers=1, env=None, args=(), place=None):
        self._folder = tempfile.TemporaryDirectory(prefix="tf_byteps_test_")
        self._env = env if callable(env) else lambda label: env or {}
        self._place = place or (lambda label: (None, "127.0.0.1"))
        self._secret = new_secret()
        self.scheduler = None
        self.servers, self.workers = [], []
        self._reports = None
        self._port = 0
        self._tasks = {}
        self._replaced = []
        self._plan = Plan(
            workers=workers,
            servers=servers,
            hosts=(Host("localhost", workers),),
            server_hosts=("localhost",),
            job_id=secrets.token_hex(8),
            command=worker_command(function, args),
        )

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes() + self._replaced:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.popen.pid, signal.SIGKILL)
            process.popen.wait()
        if self._reports is not None:
            self._reports.close()
        self._folder.cleanup()

    def processes(self):
        return ([self.scheduler] if self.scheduler else []) + self.servers + self.workers

    def wait(self, timeout):
        """Waits until all have ended, or the time is over; returns the `Outcome`s."""
        self.wait_for(self.processes(), timeout)
        return [process.outcome() for process in self.processes()]

    def wait_for(self, processes, timeout):
        """Waits until these have ended, or the time is over."""
        deadline = time.monotonic() + timeout
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.popen.wait(max(0.0, deadline - time.monotonic()))

    def _start(self):
        address, port = self._place("scheduler")[1], 0
        if self._plan.needs_scheduler:
            self._port = port = self._start_scheduler(address)
        # One by one: if a start fails, those before it are known and end.
        for task in self._plan.server_tasks(address, port):
            self.servers.append(self._process(task))
        for task in self._plan.worker_tasks(address, port):
            self.workers.append(self._process(task))

    def replace(self, process, command=None):
        """Starts another process in the place of one that has ended; returns it.

        Args:
            process: one of `processes()`; it is killed if it runs.
            command: what the new one runs, instead of the same.
        """
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.popen.pid, signal.SIGKILL)
        process.popen.wait()
        task = self._tasks[process.label]
        if command is not None:
            task = dataclasses.replace(task, command=command)
        if task.role == "scheduler":
            # It is looked for where the first one was, and nobody reads its reports any more.
            variables = {**task.variables, "DMLC_PS_ROOT_PORT": str(self._port)}
            task = dataclasses.replace(task, command=task.command[:3], variables=variables)
        self._replaced.append(process)
        new = self._process(task, suffix=f"-{len(self._replaced)}")
        if process is self.scheduler:
            self.scheduler = new
        else:
            group = self.servers if process in self.servers else self.workers
            group[group.index(process)] = new
        return new

    def _start_scheduler(self, address):
        readable, writable = os.pipe()
        self._reports = open(readable)
        task = self._plan.scheduler_task(address, writable)
        self.scheduler = self._process(task, (writable,))
        os.close(writable)
        line = self._reports.readline()
        assert line.startswith("port "), self.scheduler.output()
        return int(line.split()[1])

    def _process(self, task, pass_fds=(), suffix=""):
        self._tasks[task.label] = task
        secret = {"BYTEPS_JOB_SECRET": self._secret}
        env = clean_environment(**{**secret, **task.variables, **self._env(task.label)})
        folder = pathlib.Path(self._folder.name)
        namespace, address = self._place(task.label)
        command = (*within(namespace), *task.command)
        if namespace is not None:
            env["DMLC_NODE_HOST"] = address
        return Process(task.label, command, env, folder, pass_fds, suffix)


def run_processes(function, workers=2, servers=1, env=None, timeout=60, args=()):
    """Runs a job to its end.

    Args:
        timeout: seconds after which what still runs is killed.
        function, workers, servers, env, args: see `Cluster`.

    Returns:
        The `Outcome` of each process, in the order scheduler, servers, workers.
    """
    with Cluster(function, workers, servers, env, args) as cluster:
        return cluster.wait(timeout)


def run_workers(function, workers=2, servers=1, env=None, timeout=60, args=()):
    """Runs a job that has to end well.

    Returns:
        What the function returned on each worker, by rank.

    Raises:
        AssertionError: a process failed or did not end; shows the output of all.
    """
    outcomes = run_processes(function, workers, servers, env, timeout, args)
    if any(outcome.code != 0 for outcome in outcomes):
        raise AssertionError(describe(outcomes))
    return [outcome.result for outcome in outcomes if outcome.label.startswith("worker")]


def outcome_of(outcomes, label):
    """That of one process."""
    return next(outcome for outcome in outcomes if outcome.label == label)


def describe(outcomes):
    """All exit codes and outputs, for the message of a failed test."""
    lines = []
    for outcome in outcomes:
        code = "did not end in time" if outcome.code is None else f"exit code {outcome.code}"
        lines.append(f"---- {outcome.label}: {code}\n{outcome.output}")
    return "\n".join(lines)


def clean_environment(**variables):
    """This environment without any job's variables, and with those that tests want."""
    kept = {n: v for n, v in os.environ.items() if n not in TOPOLOGY and n[:7] != "BYTEPS_"}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**kept, **_DEFAULTS, "PYTHONPATH": path, **variables}


def wait_until(condition, timeout=60, found=None):
    """Waits until `condition()` is true; fails after `timeout` seconds with `found()`."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            raise AssertionError(f"not true after {timeout} s: {found() if found else condition}")
        time.sleep(0.02)


def outputs_of(processes, timeout):
    """What each has written to its pipes, a pair, when all have ended. None is left."""
    try:
        return [process.communicate(timeout=timeout) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def all_gone(processes):
    """Whether no process of a list of `psutil.Process` runs any more."""
    return not any(p.is_running() and _status(p) != psutil.STATUS_ZOMBIE for p in processes)


def _status(process):
    try:
        return process.status()
    except psutil.NoSuchProcess:
        return psutil.STATUS_ZOMBIE


def free_port(count=1):
    """The first of some ports in a row that were free a moment ago, for what cannot choose its own.

    They are below those that Linux gives to whoever asks for any: none becomes a connection's own.
    """
    while True:
        first = random.randrange(10_000, 30_000)
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first


def worker_command(function, args=()):
    """What a worker runs to call a function of a module."""
    assert "." not in function.__qualname__, "workers can only find functions of a module"
    module, name = function.__module__, function.__name__
    return (sys.executable, "-m", "tests.cluster", module, name, json.dumps(args))


def _run_as_worker(module, name, args):
    quick_start.leave_out_packages()
    result = getattr(importlib.import_module(module), name)(*json.loads(args))
    path = pathlib.Path(os.environ["TESTS_RESULT_FILE"])
    path.write_text(json.dumps(result))


if __name__ == "__main__":
    _run_as_worker(*sys.argv[1:])
