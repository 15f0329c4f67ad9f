"""Runs one command and answers for all processes that come of it.

bpslaunch starts every command through a guard, on its own machine or at the far end of an ssh
connection: `python -m tf_byteps.launch.guard -- command...`. Standard input is the leash: each line
names a signal for the command's process group, and its end (bpslaunch was killed, the connection
broke) means that everything has to end. Whatever the command leaves running is ended, too. The exit
code is the command's, 128 + n if signal n ended it. With --variables-by-stdin the first line is a
JSON object of variables for the command: unlike a command line nobody else can read it.

It also gives a worker its GPU, and with numactl the processors beside that: only here, on the
worker's machine, it is known which there are.
"""

import argparse
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from tf_byteps.gpus import assigned_gpu, beside_gpu

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CANNOT_START = 127
_POLL_SECONDS = 0.05
_UNKILLABLE_SECONDS = 5.0

_libc = ctypes.CDLL(None, use_errno=True)


class Guard:
    """One command and its descendants.

    Args:
        command: a list of program and arguments.
        grace: seconds from asking processes to end to killing them.
        keep: descriptors that the command inherits.
    """

    def __init__(self, command: list[str], grace: float, keep: Sequence[int] = ()) -> None:
        self._grace = grace
        self._leash: int | None = 0  # standard input
        self._kill_at = None
        self.code = None
        self._wakeup = _signals_to_pipe()
        # Orphaned descendants become children of this process, and are found when all has to end.
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        guard = os.getpid()
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a terminal's Ctrl-C reaches bpslaunch only
            pass_fds=keep,
            preexec_fn=lambda: _enter_command(guard),
        )

    def run(self) -> int:
        """Returns the command's exit code once no descendant is left."""
        while self.code is None:
            watched = [self._wakeup] if self._leash is None else [self._wakeup, self._leash]
            ready, _, _ = select.select(watched, [], [], self._timeout())
            if self._wakeup in ready:
                self._take_signals()
            if self._leash in ready:
                self._take_commands()
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._kill_at = None
                self._signal_all(signal.SIGKILL)
            self._reap()
        self._end_leftovers()
        return self.code

    def _timeout(self) -> float | None:
        return None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())

    def _take_signals(self) -> None:
        for number in os.read(self._wakeup, 64):
            if number not in (signal.SIGCHLD, signal.SIGUSR1):
                self._signal_group(number)

    def _take_commands(self) -> None:
        text = os.read(0, 1024).decode(errors="replace")
        if not text:
            self._leash = None
            self._signal_all(signal.SIGTERM)
            self._kill_at = time.monotonic() + self._grace
        for name in text.split():
            if name == "SIGKILL":
                self._signal_all(signal.SIGKILL)
            elif name == "SIGUSR1":
                self._ask_all(signal.SIGUSR1)
            else:
                self._signal_group(signal.Signals[name])

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self._child.pid, number)
        except ProcessLookupError:
            pass  # it has just ended, _reap is about to see it

    def _signal_all(self, number: int) -> None:
        for process in descendants(os.getpid()):
            try:
                os.kill(process, number)
            except ProcessLookupError:
                pass

    def _ask_all(self, number: int) -> None:
        """Sends a signal to those that expect it. It would end others, a worker's shell too."""
        for process in descendants(os.getpid()):
            try:
                if handles(process, number):
                    os.kill(process, number)
            except ProcessLookupError:
                pass

    def _reap(self) -> bool:
        """Collects all children that have ended, the command's and orphans."""
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if process == 0:
                return True
            if process == self._child.pid:
                code = os.waitstatus_to_exitcode(status)
                self.code = self._child.returncode = code if code >= 0 else 128 - code

    def _end_leftovers(self) -> None:
        self._signal_all(signal.SIGTERM)
        kill_at = time.monotonic() + self._grace
        while self._reap():
            now = time.monotonic()
            if now > kill_at:
                self._signal_all(signal.SIGKILL)
            if now > kill_at + _UNKILLABLE_SECONDS:  # it hangs in the kernel
                return
            time.sleep(_POLL_SECONDS)


def descendants(ancestor: int) -> list[int]:
    """The processes that descend from `ancestor`, children before grandchildren."""
    children = {}
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        if state != "Z":
            children.setdefault(int(parent), []).append(int(entry))
    found, frontier = [], [ancestor]
    while frontier:
        frontier = [child for process in frontier for child in children.get(process, [])]
        found += frontier
    return found


def handles(process: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    try:
        with open(f"/proc/{process}/status", encoding="utf-8", errors="replace") as file:
            (caught,) = (line for line in file if line.startswith("SigCgt:"))
    except FileNotFoundError:
        return False  # it has just ended
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def die_with(parent: int) -> None:
    """Has this process killed when its parent dies, even of SIGKILL.

    Args:
        parent: the parent's process number. If it has died before, this process ends at once.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(_CANNOT_START)


def _enter_command(guard: int) -> None:
    """In the child."""
    die_with(guard)
    # Python ignores SIGPIPE; the command should have the usual behaviour.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def _signals_to_pipe() -> int:
    """A descriptor that becomes readable on signals: one byte for each, its number."""
    readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    return readable


def _first_line() -> str:
    """The first line of standard input; what follows stays there."""
    line = bytearray()
    while byte := os.read(0, 1):
        if byte == b"\n":
            break
        line += byte
    return line.decode() or "{}"  # nothing: bpslaunch has ended


def _usable(prefix: list[str]) -> list[str]:
    """`prefix` if it starts programs here; in containers numactl often may not."""
    if prefix and subprocess.run([*prefix, "true"], capture_output=True).returncode == 0:
        return prefix
    return []


def why_not(command: Sequence[str], reason: str) -> str:
    """The command that cannot be started, and what to do about it."""
    program, *rest = command
    if program.endswith(".py") and os.path.isfile(program):
        instead = " ".join(["python", program, *rest])
        return f"{program!r}: it is a script. Start it with python: {instead}"
    return f"{program!r}: {reason}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tf_byteps.launch.guard")
    parser.add_argument("--grace", type=float, default=5.0)
    parser.add_argument("--keep-fd", type=int, action="append", default=[])
    parser.add_argument("--variables-by-stdin", action="store_true")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    if arguments.variables_by_stdin:
        os.environ.update(json.loads(_first_line()))
    variables, remark = assigned_gpu(os.environ)
    os.environ.update(variables)
    command = arguments.command
    if variables:
        command = _usable(beside_gpu(variables["CUDA_VISIBLE_DEVICES"], shutil.which)) + command
    if remark:
        print(f"bpslaunch: {remark}", file=sys.stderr)
    try:
        guard = Guard(command, arguments.grace, arguments.keep_fd)
    except OSError as error:
        reason = error.strerror or str(error)
        print(f"cannot start {why_not(arguments.command, reason)}", file=sys.stderr)
        return _CANNOT_START
    return guard.run()


if __name__ == "__main__":
    sys.exit(main())
