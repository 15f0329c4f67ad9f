"""What /proc says of processes: who started them, when, with which command and variables."""

from __future__ import annotations

import os
import pathlib
import shlex
import time
from collections.abc import Iterator

_PROCESSES = pathlib.Path("/proc")


def with_ancestors(process: int) -> Iterator[int]:
    """A process's number, its parent's, and so on, as far as they can be seen."""
    while process > 0:
        yield process
        fields = _fields(process)
        process = int(fields[1]) if fields else 0


def age(process: int) -> float | None:
    """How long a process has run, in seconds; None: it has ended."""
    fields = _fields(process)
    if not fields:
        return None
    since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot)


def command(process: int) -> str:
    """Its command line; "" if nobody may see it."""
    return shlex.join(_words(process, "cmdline"))


def variable(process: int, name: str) -> str:
    """A variable of the environment with which it was started; "" if nobody may see it."""
    start = f"{name}="
    found = (word for word in _words(process, "environ") if word.startswith(start))
    return next(found, start).removeprefix(start)


def _words(process: int, file: str) -> list[str]:
    try:
        data = (_PROCESSES / str(process) / file).read_bytes()
    except OSError:
        return []
    return data.decode(errors="replace").rstrip("\0").split("\0")


def _fields(process: int) -> list[str]:
    """What is behind the name in its "stat": state, parent, ..."""
    try:
        text = (_PROCESSES / str(process) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
