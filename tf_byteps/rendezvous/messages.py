"""The messages of rendezvous: JSON objects, checked field by field, never pickled.

    joining process                       scheduler
    Join, again and again         ->
                                  <-      Progress  (who is missing), or Refused
                                  <-      Assigned "server"   when all are there
    Ready "server"                ->
                                  <-      Assigned "worker"   when all servers are ready
    Ready "worker"                ->
    Leave (it gives up)           ->
                                  <-      Failed    (the job cannot start any more)

A member of an elastic job has another connection, from its first Join to its end:

                                  <-      Changed   (others want to come, or members are to leave)
    Done                          ->      (it needs the job no more)
                                  <-      Present   (whether it is still there; needs no answer)

and instead of Assigned it may get Dismissed: the job goes on, or has ended, without it.

A process that hosts a server gets "server" first; one that is a worker gets "worker". It asks every
second until it has a place, and then once in a heartbeat interval, to show that it is still there.

The book is the long message, and each of n participants gets it: it is encoded once, sent once to
each, and has its addresses column by column, which are quick to check (protocol rule 30).
"""

import dataclasses
import functools
import json
import reprlib
import types
import typing
from typing import Any

from tf_byteps.errors import RendezvousError

VERSION = 1
MAX_BYTES = 1 << 22


@dataclasses.dataclass(frozen=True)
class Address:
    """Where somebody listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclasses.dataclass(frozen=True)
class Book:
    """Who takes part in a job, and where: what the engine calls a JobDescription."""

    job_id: str
    epoch: int
    worker_hosts: list[str]
    server_hosts: list[str]
    server_endpoints: list[Address]
    server_workers: list[int]  # the rank of the worker that hosts each server; -1: none does
    coordinator_endpoint: Address | None
    options: dict[str, float]
    # Each worker has a GPU that no other one uses, and some workers have a host in common.
    gpus_share_hosts: bool = False
    # What a scheduler's process has drawn: the same in all jobs that it brings together.
    run_id: str = ""
    # Where processes wait for questions of the scheduler's (`relay`), in a job of several hosts.
    relay_endpoint: Address | None = None

    def local_rank(self, rank: int) -> int:
        """The worker's number among those on its host, in rank order."""
        return self.worker_hosts[:rank].count(self.worker_hosts[rank])

    def local_size(self, rank: int) -> int:
        """How many workers are on the worker's host."""
        return self.worker_hosts.count(self.worker_hosts[rank])

    def name_of(self, role: str, rank: int) -> str:
        """A process's name, which no other one has in any epoch."""
        return f"{self.epoch}/{role} {rank}"

    def elsewhere(self, host: str) -> dict[str, int]:
        """How many workers and servers are on other hosts than this one."""
        roles = {"workers": self.worker_hosts, "servers": self.server_hosts}
        return {role: sum(each != host for each in hosts) for role, hosts in roles.items()}


@dataclasses.dataclass(frozen=True)
class Join:
    """A process asks to take part, and shows again and again that it is still there."""

    participant: str  # random, one for each attempt of a process
    package_version: str
    role: str
    process: str  # "host name, process 123", for people
    job_id: str | None
    rank: int | None
    size: int
    server_id: int | None
    num_servers: int
    host_id: str
    server_endpoint: Address | None  # if the process hosts a server
    options: dict[str, float]  # the shared options that were set here
    gpu: str | None = None  # the one that a worker computes on, as CUDA_VISIBLE_DEVICES names it
    member: str | None = None  # a worker's name in an elastic job
    metrics: Address | None = None  # where the process serves its own


@dataclasses.dataclass(frozen=True)
class Ready:
    participant: str
    stage: str


@dataclasses.dataclass(frozen=True)
class Leave:
    participant: str


@dataclasses.dataclass(frozen=True)
class Progress:
    text: str
    admitted: bool  # it has a place, and need not ask every second


@dataclasses.dataclass(frozen=True)
class Assigned:
    stage: str  # "server" or "worker"
    rank: int  # in that role
    book: Book | None  # None: the one that it got with the stage before


@dataclasses.dataclass(frozen=True)
class Refused:
    reason: str


@dataclasses.dataclass(frozen=True)
class Failed:
    reason: str
    interrupted: bool  # all had come; the scheduler may wait for them again


@dataclasses.dataclass(frozen=True)
class Changed:
    epoch: int  # of the book that no longer says who takes part
    reason: str


@dataclasses.dataclass(frozen=True)
class Present:
    pass


@dataclasses.dataclass(frozen=True)
class Done:
    member: str


@dataclasses.dataclass(frozen=True)
class Dismissed:
    reason: str


_ALL = (Join, Ready, Leave, Progress, Assigned, Refused, Failed, Changed, Present, Done, Dismissed)
Message = (
    Join
    | Ready
    | Leave
    | Progress
    | Assigned
    | Refused
    | Failed
    | Changed
    | Present
    | Done
    | Dismissed
)
_KINDS = {kind.__name__: kind for kind in _ALL}


def encode(message: Message) -> bytes:
    """A message as bytes."""
    return json.dumps(_with_kind(message)).encode()


class EncodedBook:
    """A book that is encoded once, for all who get it.

    Args:
        book: a `Book`.
    """

    def __init__(self, book: Book) -> None:
        self._json = json.dumps(_plain(book)).encode()

    def assign(self, stage: str, rank: int) -> bytes:
        """What `encode` returns of `Assigned(stage, rank, book)`."""
        fields = _with_kind(Assigned(stage, rank, None))
        del fields["book"]
        return json.dumps(fields).encode()[:-1] + b', "book": ' + self._json + b"}"


def _with_kind(message: Message) -> dict[str, Any]:
    return {"version": VERSION, "kind": type(message).__name__, **_plain(message)}


def _plain(value: Any) -> Any:
    """A value as JSON knows it; objects in a list become one list for each of their fields."""
    if dataclasses.is_dataclass(value):
        return {name: _plain(getattr(value, name)) for name in _types(type(value))}
    if isinstance(value, list) and value and dataclasses.is_dataclass(value[0]):
        return {name: [getattr(item, name) for item in value] for name in _types(type(value[0]))}
    return value


def decode(data: bytes) -> Message:
    """The message in `data`.

    Raises:
        RendezvousError: it is none, or of another version.
    """
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise RendezvousError("the peer does not speak tf_byteps rendezvous") from None
    if not isinstance(fields, dict) or "kind" not in fields:
        raise RendezvousError("the peer does not speak tf_byteps rendezvous")
    version = fields.pop("version", None)
    if version != VERSION:
        raise RendezvousError(
            f"the peer speaks version {_short(version)} of rendezvous and this process version "
            f"{VERSION}: install one version of tf_byteps everywhere"
        )
    kind = fields.pop("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise RendezvousError(f"there is no message {_short(kind)}")
    return _read(_KINDS[kind], fields, kind)


def _read(expected: Any, value: Any, where: str) -> Any:
    """`value` as an `expected` type, or an error that names the field."""
    if dataclasses.is_dataclass(expected):
        return _read_object(expected, value, where)
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin is types.UnionType:
        return None if value is None else _read(arguments[0], value, where)
    if origin is list:
        return _read_list(arguments[0], value, where)
    if origin is dict and isinstance(value, dict):
        return {
            str(key): _read(arguments[1], item, f"{where}.{_short(key)}")
            for key, item in value.items()
        }
    if expected is bool and isinstance(value, bool):
        return value
    accepted = (int, float) if expected is float else expected
    if origin is None and isinstance(value, accepted) and not isinstance(value, bool):
        return value
    raise RendezvousError(f"{where} is {_short(value)}, but must be {expected}")


def _read_list(expected: Any, value: Any, where: str) -> list[Any]:
    if dataclasses.is_dataclass(expected) and value != []:
        _check_fields(expected, value, where)
        fields = _types(expected).items()
        columns = [_read_list(kind, value[name], f"{where}.{name}") for name, kind in fields]
        if len({len(column) for column in columns}) > 1:
            raise RendezvousError(f"{where} has columns of different lengths")
        return [expected(*row) for row in zip(*columns)]  # pyright: ignore[reportCallIssue]
    if isinstance(value, list) and set(map(type, value)) <= {expected}:
        return value
    raise RendezvousError(f"{where} is {_short(value)}, but must be a list of {expected}")


def _read_object(expected: Any, value: Any, where: str) -> Any:
    _check_fields(expected, value, where)
    fields = _types(expected).items()
    return expected(**{name: _read(kind, value[name], f"{where}.{name}") for name, kind in fields})


def _check_fields(expected: Any, value: Any, where: str) -> None:
    fields = _types(expected)
    if not isinstance(value, dict) or set(value) != set(fields):
        raise RendezvousError(
            f"{where} is {_short(value)}, but must have the fields {', '.join(fields)}"
        )


@functools.cache
def _types(message: Any) -> dict[str, Any]:
    """The fields of a class of messages, with their types."""
    return {field.name: field.type for field in dataclasses.fields(message)}


def _short(value: Any) -> str:
    """A value in a message or a log: what a stranger sends may be long."""
    return reprlib.repr(value)
