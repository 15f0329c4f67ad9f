"""One process of a job: its output, the signals that it is sent, and its exit code."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable

from tf_byteps.launch.launcher import Process
from tf_byteps.launch.output import LogFile, Screen, Stream, last_lines
from tf_byteps.launch.plan import Task


class RunningTask:
    """A started task. For `log`, `is_shown` and `reported` see `Stream`."""

    def __init__(
        self,
        task: Task,
        process: Process,
        screen: Screen,
        number: int,
        log: LogFile | None = None,
        is_shown: bool = True,
        reported: re.Pattern[str] | None = None,
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
                reported,
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


def alive(tasks: Iterable[RunningTask], role: str | None = None) -> list[RunningTask]:
    """Those that have not ended, all or those of a role."""
    return [t for t in tasks if t.code is None and (role is None or t.task.role == role)]
