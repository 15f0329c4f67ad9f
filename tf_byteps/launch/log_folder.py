"""The folder of a run's log files: no run writes into that of another."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from tf_byteps.errors import ConfigError
from tf_byteps.launch.plan import Task

_RUN = re.compile(r"run-(\d{4,})")
_FACTS = "job.json"
_LATEST = "latest"


class LogFolder:
    """A folder in `--log-dir` for one run, such as "logs/run-0003"; the link "latest" leads there.

    A job of Slurm that is requeued, or that runs the same command again, goes on with its files.

    Args:
        parent: what `--log-dir` names. It is made if need be.
        command: what the workers run.
        environment: variables of this process: Slurm says there which job this is.

    Raises:
        ConfigError: the folder cannot be made.
    """

    def __init__(self, parent: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._facts = {"command": list(command), "slurm_job": environment.get("SLURM_JOB_ID")}
        self._lock: IO[str] | None = None  # held as long as this run writes
        try:
            os.makedirs(parent, exist_ok=True)
            self.path = self._of_this_job(parent) or self._new(parent)
        except OSError as error:
            raise ConfigError(f"--log-dir {parent} cannot be created: {error.strerror}") from None
        _link(parent, os.path.basename(self.path))

    def open(self, task: Task) -> tuple[str, IO[bytes]]:
        """The path of a task's file, and the file; what it has already is kept, above a header.

        Raises:
            ConfigError: it cannot be written.
        """
        path = os.path.join(self.path, task.label.replace(" ", "-") + ".log")
        try:
            file = open(path, "ab", buffering=0)
            if os.fstat(file.fileno()).st_size:
                now = datetime.datetime.now().astimezone().isoformat(" ", "seconds")
                file.write(f"\n--- {now}: {shlex.join(task.command)} ---\n".encode())
        except OSError as error:
            raise ConfigError(f"--log-dir: {path}: {error.strerror}") from None
        return path, file

    def _of_this_job(self, parent: str) -> str | None:
        """The folder in which an earlier run of the same job of Slurm has ended."""
        if self._facts["slurm_job"] is None:
            return None
        for _, name in sorted(_runs(parent), reverse=True):
            path = os.path.join(parent, name)
            with contextlib.suppress(OSError, ValueError):
                with open(os.path.join(path, _FACTS), encoding="utf-8") as file:
                    same = json.load(file) == self._facts
                if same and self._locked(path):
                    return path
        return None

    def _new(self, parent: str) -> str:
        """A folder that no other run has, even one that begins at the same moment."""
        number = max((number for number, _ in _runs(parent)), default=0) + 1
        while True:
            path = os.path.join(parent, f"run-{number:04}")
            try:
                os.mkdir(path)
            except FileExistsError:
                number += 1
                continue
            with open(os.path.join(path, _FACTS), "x", encoding="utf-8") as file:
                json.dump(self._facts, file)
            if self._locked(path):
                return path

    def _locked(self, path: str) -> bool:
        """Whether no other run writes there, and none will while this one does."""
        file = open(os.path.join(path, _FACTS), encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        except OSError:
            pass  # a file system without locks
        self._lock = file
        return True


def _runs(parent: str) -> Iterator[tuple[int, str]]:
    for name in os.listdir(parent):
        if match := _RUN.fullmatch(name):
            yield int(match[1]), name


def _link(parent: str, name: str) -> None:
    """Points "latest" to a run, where the file system has links."""
    new = os.path.join(parent, f".{_LATEST}-{name}")
    with contextlib.suppress(OSError):
        os.symlink(name, new)
        try:
            os.replace(new, os.path.join(parent, _LATEST))
        except OSError:
            os.unlink(new)
