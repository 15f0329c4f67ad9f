"""What a reader finds, and what readers have in common."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from tf_byteps.errors import ConfigError

# Below the ports that Linux gives to those who ask for any.
_PORTS = range(10_000, 30_000)
MAX_PORT = 65535


@dataclasses.dataclass(frozen=True)
class Place:
    """Where this process stands in its job, as a launcher says it.

    Attributes:
        source: the launcher's name, or its variable's.
        said: its variables and their values, for error messages.
        fields: values of `Config` fields.
        rank: this process's rank; None: it is not a worker.
        size: number of workers.
        per_host: whether the launcher starts one process on each host, which may start others.
    """

    source: str
    said: str
    fields: dict[str, Any]
    rank: int | None = None
    size: int | None = None
    per_host: bool = False

    def agrees_with(self, other: Place) -> bool:
        """Whether both can be true."""
        if None in (self.rank, other.rank) or (self.rank, self.size) == (other.rank, other.size):
            return True
        return any(
            a.per_host and (a.size or 0) < (b.size or 0) for a, b in ((self, other), (other, self))
        )

    def completed_by(self, other: Place) -> Place:
        """This place, with what another source says besides."""
        if (self.rank, self.size) != (other.rank, other.size):
            return self
        return dataclasses.replace(self, fields={**other.fields, **self.fields})


def numbered(
    source: str,
    said: str,
    rank: int,
    size: int,
    local_rank: int | None = None,
    local_size: int | None = None,
    host: str | None = None,
    port: int | None = None,
    job_id: str | None = None,
    per_host: bool = False,
) -> Place | None:
    """The place of a worker whose launcher numbers processes; rank 0 hosts the scheduler.

    Args:
        source, said, rank, size, per_host: see `Place`.
        local_rank, local_size: its number among those on its host, and how many these are.
        host, port: where rank 0 listens.
        job_id: tells this job from others of the launcher.

    Returns:
        A `Place`; None for a job of one process, which needs no launcher.

    Raises:
        ConfigError: the numbers contradict each other.
    """
    if size == 1:
        return None
    if not 0 <= rank < size:
        raise ConfigError(f"{source}: {said}: the rank must be from 0 to {size - 1}")
    fields = {
        "global_rank": rank,
        "global_size": size,
        "local_rank": local_rank,
        "local_size": local_size,
        "scheduler_host": host,
        "scheduler_port": port,
        "job_id": job_id,
        "colocated_scheduler": rank == 0,
    }
    known = {name: value for name, value in fields.items() if value is not None}
    return Place(source, said, known, rank, size, per_host)


def has(environment: Mapping[str, str], *names: str) -> bool:
    """Whether all these variables are set, to something."""
    return all(environment.get(name, "").strip() for name in names)


def whole(environment: Mapping[str, str], name: str) -> int:
    """A variable's value, a whole number from 0.

    Raises:
        ConfigError: it is none.
    """
    text = environment[name].strip()
    if not text.isdecimal():
        raise ConfigError(f'{name} is "{text}", but must be a whole number')
    return int(text)


def quote(environment: Mapping[str, str], *names: str) -> str:
    """Variables and their values in words."""
    return ", ".join(f"{name}={environment[name]}" for name in names if has(environment, name))


def port_for(job_id: str, ports: Sequence[int] = _PORTS) -> int:
    """One of some ports, which all processes of a job find alike.

    Jobs side by side hardly share it, if there are many.
    """
    digest = hashlib.sha256(job_id.encode()).digest()
    return ports[int.from_bytes(digest[:4], "big") % len(ports)]


def ports_in(text: str) -> range:
    """The ports in "20000-20063".

    Raises:
        ValueError: the text has another form.
    """
    first, dash, last = (word.strip() for word in text.partition("-"))
    if not (dash and first.isdecimal() and last.isdecimal()):
        raise ValueError(text)
    if not 1 <= int(first) <= int(last) <= MAX_PORT:
        raise ValueError(text)
    return range(int(first), int(last) + 1)
