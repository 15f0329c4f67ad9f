"""The messages of rendezvous: JSON objects, checked field by field, never pickled.

    joining process                       scheduler
    Join, again every second      ->
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

A process that hosts a server gets "server" first; one that is a worker gets "worker".
"""

import dataclasses
import json
import reprlib
import types
import typing

from tf_byteps.errors import RendezvousError

VERSION = 1
MAX_BYTES = 1 << 22


@dataclasses.dataclass(frozen=True)
class Address:
    """Where somebody listens."""

    host: str
    port: int

    def __str__(self):
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

    def local_rank(self, rank):
        """The worker's number among those on its host, in rank order."""
        return self.worker_hosts[:rank].count(self.worker_hosts[rank])

    def local_size(self, rank):
        """How many workers are on the worker's host."""
        return self.worker_hosts.count(self.worker_hosts[rank])


@dataclasses.dataclass(frozen=True)
class Join:
    """A process asks to take part, and shows every second that it is still there."""

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


@dataclasses.dataclass(frozen=True)
class Assigned:
    stage: str  # "server" or "worker"
    rank: int  # in that role
    book: Book


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
_KINDS = {kind.__name__: kind for kind in _ALL}


def encode(message):
    """A message as bytes."""
    fields = {"version": VERSION, "kind": type(message).__name__, **dataclasses.asdict(message)}
    return json.dumps(fields).encode()


def decode(data):
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


def _read(expected, value, where):
    """`value` as an `expected` type, or an error that names the field."""
    if dataclasses.is_dataclass(expected):
        return _read_object(expected, value, where)
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin is types.UnionType:
        return None if value is None else _read(arguments[0], value, where)
    if origin is list and isinstance(value, list):
        return [_read(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value)]
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


def _read_object(expected, value, where):
    fields = {field.name: field.type for field in dataclasses.fields(expected)}
    if not isinstance(value, dict) or set(value) != set(fields):
        raise RendezvousError(
            f"{where} is {_short(value)}, but must have the fields {', '.join(fields)}"
        )
    return expected(
        **{name: _read(kind, value[name], f"{where}.{name}") for name, kind in fields.items()}
    )


def _short(value):
    """A value in a message or a log: what a stranger sends may be long."""
    return reprlib.repr(value)
