"""A process that has joined a job, the place that it takes there, and why one may be refused."""

from __future__ import annotations

import dataclasses

from tf_byteps.rendezvous.messages import Address, Join


class Refusal(Exception):
    """Why a process cannot take part, in words for its user."""


class PlaceTaken(Refusal):
    """Its place is taken by participants of whom one may be dead, without anybody knowing yet.

    Attributes:
        holders: these `Participant`s.
    """

    def __init__(self, reason: str, holders: list[Participant]) -> None:
        super().__init__(reason)
        self.holders = holders


@dataclasses.dataclass
class Participant:
    """A process that has joined, and what the scheduler knows of it."""

    join: Join
    route: bytes  # where answers go
    last_seen: float
    rank: int | None = None  # as a worker
    server_rank: int | None = None
    ready: set[str] = dataclasses.field(default_factory=set)  # stages

    @property
    def is_worker(self) -> bool:
        return self.join.role == "worker"

    @property
    def hosts_server(self) -> bool:
        return self.join.server_endpoint is not None

    def rank_in(self, stage: str) -> int:
        """Its number among the workers ("worker") or the servers ("server") of the job."""
        rank = self.server_rank if stage == "server" else self.rank
        if rank is None:
            raise RuntimeError(f"{self} has no rank as a {stage} yet")
        return rank

    @property
    def is_done(self) -> bool:
        """Whether it has got all that rendezvous gives it."""
        return ("worker" if self.is_worker else "server") in self.ready

    def __str__(self) -> str:
        number = self.join.rank if self.is_worker else self.join.server_id
        number = self.join.member if number is None else number
        name = self.join.role if number is None else f"{self.join.role} {number}"
        return f"{name} ({self.join.process})"


def place_of(join: Join) -> tuple[str, str | int]:
    """What no two participants can have: a rank, a server id or a member's name."""
    if join.member is not None:
        return "member", join.member
    number = join.rank if join.role == "worker" else join.server_id
    return (join.role, number) if number is not None else ("participant", join.participant)


def server_order(participant: Participant) -> tuple:
    """By which server processes are sorted: those with a number first."""
    endpoint = participant.join.server_endpoint or Address("", 0)
    server_id = participant.join.server_id
    return (server_id is None, server_id or 0, endpoint.host, endpoint.port)
