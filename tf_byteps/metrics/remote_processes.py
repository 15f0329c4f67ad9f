"""The processes of a job on other hosts, as its scheduler's process tells bpstop of them."""

from __future__ import annotations

import dataclasses
import json
import typing

if typing.TYPE_CHECKING:
    from tf_byteps.job import JobScheduler

#: Of the scheduler's local socket.
PATH = "/elsewhere"
_ANSWER_SECONDS = 0.5
_MOST_BYTES = 12 << 20


@dataclasses.dataclass(frozen=True)
class RemoteProcess:
    """A process on another host.

    Attributes:
        name: its host's name and its number there.
    """

    name: str

    @property
    def host(self) -> str:
        """The name of its host."""
        return self.name.partition(",")[0]

    def __str__(self) -> str:
        return self.name


def page_of(scheduler: JobScheduler) -> bytes:
    """What `read_page` reads: what the processes on other hosts have to tell now.

    Each worker tells of its connections to every server: the page grows with the product of both.
    In jobs with very many, some processes are left out.

    Args:
        scheduler: a `JobScheduler` of this process.
    """
    reported: list[tuple[str, str | None]] = []
    room = _MOST_BYTES
    for name, answer in scheduler.ask_elsewhere(_ANSWER_SECONDS):
        size = len(answer or b"")
        if size <= room:
            room -= size
            reported.append((name, None if answer is None else answer.decode(errors="replace")))
    return json.dumps(reported).encode()


def printable(text: str) -> str:
    """A text of another process, as it may go to a terminal: without control characters."""
    return "".join(each if each.isprintable() else "?" for each in text)


def read_page(page: str) -> dict[RemoteProcess, str | None]:
    """The answers of processes; `None` of one that has not answered in time.

    Raises:
        ValueError: it is no such page.
    """
    try:
        return {
            RemoteProcess(printable(str(name))): None if text is None else str(text)
            for name, text in json.loads(page)
        }
    except TypeError as error:
        raise ValueError(f"no list of processes: {error}") from None
