"""The files of recordings: one for each session of a process in a job. None replaces another.

A process that takes the place of a lost one has its rank, and so would have its file. So has a
server in the next membership epoch of an elastic job. Their files get a number: worker-0.json,
worker-0.2.json. The files of an earlier run, whose scheduler was another process, are replaced.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import socket
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tf_byteps import _engine
from tf_byteps.errors import BytePSError
from tf_byteps.files import GrowingFile

if typing.TYPE_CHECKING:
    from tf_byteps.rendezvous.messages import Book

FORMAT = "tf_byteps timeline 1"

# The last line of a file whose process has ended its recording.
END = "]}"

WORKERS = "worker-*.json"
SERVERS = "timeline-server-*.json"
SCHEDULER = "timeline-scheduler*.json"


@dataclasses.dataclass(frozen=True)
class Session:
    """In which job a process records, as its file says.

    Attributes:
        run: tells the job from others that record into the same folder.
        epoch: the membership epoch.
        host: the name of its host; processes of one host have one clock.
        process: its number there.
        begin: when it began to record.
    """

    run: str
    epoch: int
    host: str = dataclasses.field(default_factory=socket.gethostname)
    process: int = dataclasses.field(default_factory=os.getpid)
    begin: int = dataclasses.field(default_factory=_engine.wall_nanos)

    @classmethod
    def of(cls, book: Book) -> Session:
        """That of a process that has got this book."""
        return cls(book.run_id, book.epoch)


def session_of(path: str) -> Session:
    """What a file says; of one of an older version, that of nobody.

    Raises:
        BytePSError: it is not a timeline.
    """
    said = about(path)
    names = [field.name for field in dataclasses.fields(Session)]
    unknown = {"run": "", "epoch": 0, "host": "", "process": 0, "begin": 0}
    return Session(**{name: said.get(name, unknown[name]) for name in names})


def growing(
    path: str,
    session: Session,
    process: tuple[int, str],
    take: Callable[[], Iterable[str]],
    **said: Any,
) -> GrowingFile:
    """The file of a recording, which has the next number that no other one of the run has.

    Args:
        path: without a number.
        session: whose it is.
        process: the number and the name of the process in the trace.
        take: see `GrowingFile`.
        **said: what else the file says of itself.
    """
    other_data = json.dumps({"format": FORMAT, **dataclasses.asdict(session), **said})
    pid, name = process
    label = json.dumps({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})
    head = f'{{"displayTimeUnit": "ms", "otherData": {other_data}, "traceEvents": [\n{label}'
    return GrowingFile(path, head, take, lambda other: _is_of_run(other, session.run))


def _is_of_run(path: str, run: str) -> bool:
    try:
        return session_of(path).run == run
    except BytePSError:  # something else: what this job writes replaces it
        return False


def about(path: str) -> dict[str, Any]:
    """What a process's file says of itself, in its first line.

    Raises:
        BytePSError: it is not a timeline.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        head = file.readline().strip()
    try:
        said: Any = json.loads(head + END)["otherData"]
        if said["format"] == FORMAT:
            return said
    except (ValueError, KeyError, TypeError):  # no JSON, or other contents
        pass
    raise BytePSError(f"{path} is not a timeline of tf_byteps, or one of another version")


def events_of(path: str) -> list[dict[str, Any]]:
    """The events in a process's file; in one that is cut off, those before the cut.

    Raises:
        BytePSError: it is not a timeline.
    """
    about(path)
    with open(path, encoding="utf-8", errors="replace") as file:
        return list(_whole_events(file.read().partition("\n")[2]))


def _whole_events(text: str) -> Iterator[dict[str, Any]]:
    """One line each; a process that was killed has left the last one unfinished."""
    for line in text.splitlines():
        try:
            yield json.loads(line.removeprefix(","))
        except ValueError:  # the end, or the cut
            return


def ends_early(path: str) -> bool:
    """Whether a process's file is cut off, in an event or after one."""
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - len(END) - 1))
        return file.read().strip() != END.encode()


def files_in(folder: str, *patterns: str) -> list[str]:
    """The files of the last run that has recorded there, in the order in which they began.

    Args:
        folder: where they are.
        *patterns: `WORKERS` and the like. Default: all.

    Raises:
        BytePSError: one of them is not a timeline.
    """
    sessions = {path: session_of(path) for path in _all_in(folder)}
    if not sessions:
        return []
    last = max(sessions.values(), key=lambda session: session.begin).run
    found = {
        path
        for pattern in patterns or (WORKERS, SERVERS, SCHEDULER)
        for path in glob.glob(os.path.join(glob.escape(folder), pattern))
    }
    own = sorted(path for path in found if path in sessions and sessions[path].run == last)
    return sorted(own, key=lambda path: sessions[path].begin)


def left_out(folder: str) -> list[str]:
    """The files of earlier runs.

    Raises:
        BytePSError: a file is not a timeline.
    """
    return sorted(set(_all_in(folder)) - set(files_in(folder)))


def _all_in(folder: str) -> list[str]:
    patterns = (WORKERS, SERVERS, SCHEDULER)
    found = [glob.glob(os.path.join(glob.escape(folder), pattern)) for pattern in patterns]
    return sorted(path for paths in found for path in paths)
