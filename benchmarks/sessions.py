"""Processes that wait for calls: the benchmark says when each of them does what.

    with Session("benchmarks.programs.engine", environments, folder) as session:
        session.call("join")                  # in all processes; returns a list of their results
        session.call("rounds", count=5)

While no call runs, the processes wait for a line on their standard input and need no CPU, so that
the rounds of two competitors can take turns. Only the standard library is used here: the peers'
processes have another environment.
"""

import importlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent

_END_SECONDS = 20


class BenchmarkError(Exception):
    """Something that the benchmark needs did not work."""


def within(namespace):
    """The words before a command that runs in a network namespace; None: in this one."""
    return [] if namespace is None else ["ip", "netns", "exec", namespace]


def start_process(command, environment, log, namespace=None, **arguments):
    """Starts a process that the kernel kills if this one dies.

    Args:
        command: the program and its arguments.
        environment: all its variables.
        log: the file for its output.
        namespace: the network namespace it runs in, if not this one.
        **arguments: for `subprocess.Popen`.

    Returns:
        The `subprocess.Popen`.
    """
    prefix = ["setpriv", "--pdeathsig", "KILL", *within(namespace)]
    arguments.setdefault("stdin", subprocess.DEVNULL)
    arguments.setdefault("cwd", ROOT)
    with open(log, "wb") as output:
        return subprocess.Popen(
            [*prefix, *command],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **arguments,
        )


def wait_or_kill(process, deadline):
    """Waits for a process's end until a time of `time.monotonic`, then kills it."""
    try:
        process.wait(max(0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Child:
    """A process that serves calls."""

    def __init__(self, label, command, environment, folder, namespace, root):
        self.label = label
        self._log = folder / f"{label.replace(' ', '-')}.log"
        results, self._results_in = os.pipe()
        self._results = os.fdopen(results, "rb", buffering=0)
        self._received = b""
        self.process = start_process(
            [*command, str(self._results_in)],
            environment,
            self._log,
            namespace,
            stdin=subprocess.PIPE,
            pass_fds=(self._results_in,),
            cwd=root,
        )
        os.close(self._results_in)

    def ask(self, function, arguments):
        try:
            self.process.stdin.write(json.dumps([function, arguments]).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise BenchmarkError(f"{self.label} has ended:\n{self.log_tail()}") from None

    def answer(self, deadline):
        """The result of the call; waits for it."""
        while b"\n" not in self._received:
            left = deadline - time.monotonic()
            readable = left > 0 and select.select([self._results], [], [], left)[0]
            if not readable:
                raise BenchmarkError(f"{self.label} does not answer:\n{self.log_tail()}")
            chunk = self._results.read(1 << 16)
            if not chunk:
                raise BenchmarkError(f"{self.label} has ended:\n{self.log_tail()}")
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        result, error = json.loads(line)
        if error is not None:
            raise BenchmarkError(f"{self.label}: {error}")
        return result

    def log_tail(self, characters=3000):
        return self._log.read_text(errors="replace")[-characters:]

    def end(self, deadline):
        """Waits for the end of the process, whose standard input is closed; then kills it."""
        wait_or_kill(self.process, deadline)
        self._results.close()


class Session:
    """A group of processes with the same program. Use as a context manager.

    Args:
        program: the module whose functions are called.
        environments: the variables of each process.
        folder: a `pathlib.Path` for their logs.
        namespaces: the network namespace of each process, if not this one.
        python: the interpreter.
        label: what to call them in messages.
        pauses: whether the processes are stopped between calls, as those that are busy while they
            have nothing to do take the processors from whoever is measured then.
        root: the tree whose modules they load.
    """

    def __init__(
        self,
        program,
        environments,
        folder,
        namespaces=None,
        python=sys.executable,
        label="worker",
        pauses=False,
        root=ROOT,
    ):
        self._pauses = pauses
        namespaces = namespaces or [None] * len(environments)
        command = [python, "-m", "benchmarks.sessions", program]
        self._children = []
        try:
            for number, environment in enumerate(environments):
                self._children.append(
                    _Child(
                        f"{label} {number}", command, environment, folder, namespaces[number], root
                    )
                )
        except BaseException:
            self.close(0)
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.close(_END_SECONDS if kind is None else 0)

    def __len__(self):
        return len(self._children)

    @property
    def pids(self):
        return [child.process.pid for child in self._children]

    def call(self, function, timeout=120, **arguments):
        """Calls a function in all processes at once.

        Args:
            function: its name.
            timeout: seconds until all must have answered.
            **arguments: what JSON can hold.

        Returns:
            The results, by process.

        Raises:
            BenchmarkError: one failed, ended, or did not answer; with its last output.
        """
        return self.begin(function, timeout, **arguments)()

    def call_each(self, function, arguments, timeout=120):
        """Calls a function in all processes at once, with other arguments in each."""
        return self._begin_each(function, arguments, timeout)()

    def begin(self, function, timeout=120, **arguments):
        """As `call`, and does not wait: returns a function that waits and returns the results."""
        return self._begin_each(function, [arguments] * len(self._children), timeout)

    def _begin_each(self, function, arguments, timeout):
        deadline = time.monotonic() + timeout
        self._signal(signal.SIGCONT)
        for child, own in zip(self._children, arguments, strict=True):
            child.ask(function, own)

        def wait():
            answers = [child.answer(deadline) for child in self._children]
            self._signal(signal.SIGSTOP)
            return answers

        return wait

    def _signal(self, number):
        for child in self._children if self._pauses else ():
            child.process.send_signal(number)

    def close(self, seconds=_END_SECONDS):
        """Ends all processes; those that do not end in time are killed."""
        deadline = time.monotonic() + seconds
        self._signal(signal.SIGCONT)
        for child in self._children:
            child.process.stdin.close()
        for child in self._children:
            child.end(deadline)
        self._children = []


def _serve(program, descriptor):
    """The child: calls functions of a module until its standard input ends."""
    with os.fdopen(int(descriptor), "w") as results:
        module = importlib.import_module(program)
        for line in sys.stdin:
            function, arguments = json.loads(line)
            try:
                result, error = getattr(module, function)(**arguments), None
            except Exception:
                result, error = None, traceback.format_exc()
            results.write(json.dumps([result, error]) + "\n")
            results.flush()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
