"""`bpstop --record`: has the workers of a running job on this host record a timeline for a while.

A worker answers at its local socket only, to its own user and root, and writes the file itself.
"""

from __future__ import annotations

import os
import pathlib
import re
import time
import typing
import urllib.parse

from tf_byteps.errors import BytePSError, ConfigError

if typing.TYPE_CHECKING:
    from collections.abc import Callable

    from tf_byteps.metrics.local import LocalJob

#: Of a worker's local socket.
PATH = "/record"
MOST_SECONDS = 600.0
_LEAST_SECONDS = 0.1
_WRITING_SECONDS = 60.0  # what a worker may need for the file
_UNITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "min": 60.0}
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|min|)")


def read_time(text: str) -> float:
    """Reads "20s", "500ms", "2min" or "20": seconds.

    Raises:
        ConfigError: it is none of these, or not between a tenth of a second and ten minutes.
    """
    found = _TIME.fullmatch(text)
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not _LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise ConfigError(
            f"{text!r} is no time to record for: give 100ms to 10min, such as 20s or 2min"
        )
    return seconds


def query_of(folder: pathlib.Path, seconds: float) -> str:
    """The request that `read_query` reads."""
    return urllib.parse.urlencode({"folder": str(folder), "seconds": repr(seconds)})


def read_query(query: str) -> tuple[pathlib.Path, float]:
    """The folder to write into, and how many seconds to record.

    Raises:
        ConfigError: it is no such request.
    """
    asked = dict(urllib.parse.parse_qsl(query))
    folder = pathlib.Path(asked.get("folder", ""))
    if not folder.is_absolute():
        raise ConfigError(f"{query!r} asks for no recording: it names no absolute folder")
    return folder, read_time(asked.get("seconds", ""))


def record(
    job: LocalJob, folder: pathlib.Path, seconds: float, wait: Callable[[float], object]
) -> list[str]:
    """Has all workers of a job on this host record at the same time.

    Args:
        job: whose workers.
        folder: for a file of each worker; made if it is not there, and empty.
        seconds: for how long.
        wait: called with that number once the workers have been asked; it shows that time passes.

    Returns:
        A sentence for each worker that has not written its file.

    Raises:
        BytePSError: no worker has recorded anything.
        ConfigError: the folder has files, or cannot be made.
    """
    from tf_byteps.metrics import reading
    from tf_byteps.metrics.local import local_jobs

    folder = folder.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError(f"{folder} has files: give a new folder for the recording")
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {os.strerror(error.errno or 0)}") from None
    path = f"{PATH}?{query_of(folder, seconds)}"
    sockets = local_jobs().get(job, ())
    answers = reading.ask_all(sockets, path, seconds + _WRITING_SECONDS, lambda: wait(seconds))
    problems, written = [], 0
    for socket, answer in answers.items():
        if isinstance(answer, reading.Silence):
            problems.append(f"{socket} {answer.why}")
        elif answer.status == 200:
            written += 1
        elif answer.status != 404:  # what servers and the scheduler say
            problems.append(f"{socket}: {answer.text}")
    if not written:
        why = "; ".join(problems) or "the job has no worker on this host"
        raise BytePSError(f"nothing was recorded: {why}")
    return problems


def show(seconds: float) -> None:
    """A bar on standard error, if that is a terminal, while the workers record."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    begin = time.monotonic()
    steps = 100
    for step in track(range(steps), "recording", console=console, disable=not console.is_terminal):
        time.sleep(max(0.0, begin + seconds * (step + 1) / steps - time.monotonic()))
