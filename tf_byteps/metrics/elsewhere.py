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


@dataclasses.dataclass(frozen=True)
class Elsewhere:
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

    Args:
        scheduler: a `JobScheduler` of this process.
    """
    answers = scheduler.ask_elsewhere(_ANSWER_SECONDS)
    texts = [(n, None if text is None else text.decode(errors="replace")) for n, text in answers]
    return json.dumps(texts).encode()


def read_page(page: str) -> dict[Elsewhere, str | None]:
    """The answers of processes; `None` of one that has not answered in time.

    Raises:
        ValueError: it is no such page.
    """
    try:
        return {
            Elsewhere(str(name)): None if text is None else str(text)
            for name, text in json.loads(page)
        }
    except TypeError as error:
        raise ValueError(f"no list of processes: {error}") from None
