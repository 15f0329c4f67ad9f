"""How processes are started: here or on another host, under a guard."""

from __future__ import annotations

import fcntl
import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

from tf_byteps.errors import BytePSError, ConfigError
from tf_byteps.launch.hosts import guarded, is_local, to_start_python
from tf_byteps.launch.plan import Task
from tf_byteps.launch.remote_shells import RemoteShell

# What a pipe of Linux holds before its reader comes.
_PIPE_BYTES = 1 << 16

Process = subprocess.Popen[bytes]


class Launcher:
    """How processes are started on hosts.

    Args:
        environment: the variables that local processes inherit.
        remote_environment: those that remote processes get.
        shell: a `RemoteShell`.
        grace: seconds from asking a process to end to killing it.
        secret: the job's, or None. It goes to remote processes as all variables do, through their
            guards' standard input: everybody on a machine can see a shell's command line.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        remote_environment: Mapping[str, str],
        shell: RemoteShell,
        grace: float,
        secret: str | None = None,
    ) -> None:
        self.environment = environment
        self._secret = secret
        self._remote_environment = remote_environment
        self._shell = shell
        self._has_shell = False  # it is known to work here
        self.grace = grace

    def start(self, task: Task, keep: Sequence[int] = ()) -> Process:
        """Starts a task under a guard; returns the `Popen` of the guard or of its shell.

        Raises:
            ConfigError: remote hosts cannot be reached from here, or not this one.
            BytePSError: the process cannot be started.
        """
        here = is_local(task.host)
        command = guarded(task.command, self.grace, keep, variables_by_stdin=not here)
        variables = {**(self.environment if here else self._remote_environment), **task.variables}
        if self._secret is not None:
            variables["BYTEPS_JOB_SECRET"] = self._secret
        if not here:
            command = self._through_shell(task.host, command, to_start_python(variables))
        process = _popen(command, variables if here else self._of_shell(), task, keep)
        if not here and process.stdin is not None:
            _write_line(process.stdin, json.dumps(variables))
        return process

    def start_without_guard(self, task: Task) -> Process:
        """Starts a task that itself reads standard input, and ends when that ends.

        Its variables are on the shell's command line: they must be no secrets.
        """
        command = list(task.command)
        if is_local(task.host):
            return _popen(command, {**self.environment, **task.variables}, task)
        variables = {**to_start_python(self._remote_environment), **task.variables}
        command = self._through_shell(task.host, command, variables)
        return _popen(command, self._of_shell(), task)

    def remark(self, host: str, code: int) -> str:
        """What else the exit code of a task on a host may mean, in a sentence, or ""."""
        return "" if is_local(host) else self._shell.remark(host, code)

    @property
    def shell_name(self) -> str:
        """Of what starts processes on other hosts."""
        return self._shell.name

    def describe(self, task: Task) -> str:
        """What is started, for --verbose."""
        variables = " ".join(f"{name}={value}" for name, value in task.variables.items())
        how = "" if is_local(task.host) else f" by {self._shell.name}"
        return f"[{task.label}] on {task.host}{how}: {variables} {shlex.join(task.command)}"

    def _through_shell(
        self, host: str, command: Sequence[str], variables: Mapping[str, str]
    ) -> list[str]:
        if not self._has_shell:
            self._shell.require()
            self._has_shell = True
        return self._shell.command(host, command, variables)

    def _of_shell(self) -> dict[str, str] | None:
        return self._shell.own_environment(self.environment)


def _popen(
    command: Sequence[str],
    variables: Mapping[str, str] | None,
    task: Task,
    keep: Sequence[int] = (),
) -> Process:
    """Starts a task's command, or the shell that starts it elsewhere. None: in our environment."""
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
        here = is_local(task.host)
        hint = "" if here else f", to start {task.label} on {task.host}"
        kind = BytePSError if here else ConfigError  # something is not installed
        raise kind(f"cannot run {command[0]}{hint}: {error.strerror}") from error


def _write_line(pipe: IO[bytes], text: str) -> None:
    """Writes a line at once, whether or not somebody reads it yet."""
    data = f"{text}\n".encode()
    if len(data) > _PIPE_BYTES:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, len(data))
    try:
        pipe.write(data)
    except BrokenPipeError:
        pass  # the process has ended already, and is about to be noticed
