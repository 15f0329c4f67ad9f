"""Reads the endpoints of other processes, many at once, and never waits longer than asked."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import os
import re
import time
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tf_byteps.metrics import remote_processes
from tf_byteps.metrics.local import LocalSocket
from tf_byteps.metrics.names import GROUPS, METRICS
from tf_byteps.rendezvous.messages import Address

_MOST_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 16
_MOST_CONNECTIONS = 128  # at a time: a process may open 1024 files
_SHOWN = 40  # characters of an answer that is none
_LABELS = {metric.name: GROUPS[metric.source] for metric in METRICS}
# A line of Prometheus's text: name, labels, value. The client library's parser takes seven times as
# long, and a scheduler reads all processes of its job. Labels of no process of a job may be cut.
_SAMPLE = re.compile(r"([\w:]+)(?:\{(.*)\})? (\S+)(?: -?\d+)?")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_ROLES = {role: role for role in ("worker", "server", "scheduler")}

# Labels that are no numbers.
_TEXTS = GROUPS["event"]

# A sample's name, and its labels besides `COMMON_LABELS`, as `GROUPS` has them.
Key = tuple[str, tuple[Any, ...]]
# A role, and a rank in it, such as ("worker", 3).
Place = tuple[str, int]
# Where a process answers.
Direct = Address | LocalSocket
Where = Direct | remote_processes.RemoteProcess
_D = typing.TypeVar("_D", bound=Direct)


@dataclasses.dataclass(frozen=True)
class Reading:
    """What a process has answered.

    Attributes:
        when: `time.monotonic()` of the answer.
        places: the samples of each role that the process has; a worker may host others.
        process: its samples that belong to no role, such as "process_resident_memory_bytes".
    """

    when: float
    places: Mapping[Place, Mapping[Key, float]]
    process: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Silence:
    """Why an address has not answered as a process of a job does.

    Attributes:
        why: the end of a sentence that begins with the address.
        nobody_listens: whether there is no process.
    """

    why: str
    nobody_listens: bool = False


def read_all(addresses: Iterable[_D], seconds: float) -> Mapping[_D, Reading | Silence]:
    """Asks all at the same time.

    Args:
        addresses: numeric or local ones. Those that matter most come first, should there be many.
        seconds: how long each answer may take.

    Returns:
        What came from each.
    """
    listed = tuple(addresses)
    answers = asyncio.run(_fetch_all(listed, seconds))
    # Only now: it takes milliseconds each, in which other answers would seem late.
    return {
        address: answer if isinstance(answer, Silence) else _understand(*answer)
        for address, answer in zip(listed, answers)
    }


@dataclasses.dataclass(frozen=True)
class Answered:
    """A process's answer to a request that is not for metrics.

    Attributes:
        status: HTTP's.
        text: what it says.
    """

    status: int
    text: str


def ask_all(
    addresses: Iterable[_D], path: str, seconds: float, meanwhile: Callable[[], object]
) -> Mapping[_D, Answered | Silence]:
    """Asks all for another page, at the same time.

    Args:
        addresses: see `read_all`.
        path: of the page, with a query.
        seconds: how long each answer may take.
        meanwhile: called in another thread while they are asked.
    """

    async def ask() -> Sequence[Answer | Silence]:
        answers = asyncio.gather(*(_fetch_in_time(each, seconds, path) for each in listed))
        await asyncio.to_thread(meanwhile)
        return await answers

    listed = tuple(addresses)
    answers = asyncio.run(ask())
    return {
        address: answer if isinstance(answer, Silence) else _answered(answer[0])
        for address, answer in zip(listed, answers)
    }


def read_elsewhere(
    scheduler: LocalSocket, seconds: float
) -> Mapping[remote_processes.RemoteProcess, Reading | Silence]:
    """Asks a job's scheduler on this host for the processes on other hosts.

    Args:
        scheduler: where the scheduler's process answers.
        seconds: how long its answer may take.

    Returns:
        What came from each process that is there; nothing if the scheduler cannot ask them.
    """
    answer = asyncio.run(_fetch_in_time(scheduler, seconds, remote_processes.PATH))
    body = answer if isinstance(answer, Silence) else _body(answer[0])
    if isinstance(answer, Silence) or isinstance(body, Silence):
        return {}
    try:
        texts = remote_processes.read_page(body)
    except ValueError:
        return {}
    return {
        process: Silence("has not answered in time") if text is None else _read(text, answer[1])
        for process, text in texts.items()
    }


# What came, and when.
Answer = tuple[bytes, float]


async def _fetch_all(addresses: Sequence[Direct], seconds: float) -> Sequence[Answer | Silence]:
    free = asyncio.Semaphore(_MOST_CONNECTIONS)

    async def fetch(address: Direct) -> Answer | Silence:
        async with free:
            return await _fetch_in_time(address, seconds)

    return await asyncio.gather(*map(fetch, addresses))


async def _fetch_in_time(
    address: Direct, seconds: float, path: str = "/process"
) -> Answer | Silence:
    try:
        async with asyncio.timeout(seconds):
            answer = await _fetch(address, path)
    except TimeoutError:
        return Silence(f"has not answered in {seconds:g} s")
    except OSError as error:
        # asyncio's own text repeats the address.
        why = f"cannot be reached: {os.strerror(error.errno) if error.errno else error}"
        is_there = isinstance(error, (BrokenPipeError, ConnectionResetError, BlockingIOError))
        return Silence(why, nobody_listens=not is_there)
    if not answer:
        return Silence("closed the connection without an answer")
    return answer, time.monotonic()


async def _fetch(address: Direct, path: str) -> bytes:
    reader, writer = await _connect(address)
    try:
        # HTTP 1.0: the answer ends with the connection.
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
        answer = bytearray()
        while chunk := await reader.read(_CHUNK_BYTES):
            answer += chunk
            if len(answer) > _MOST_BYTES:
                break  # no process of a job says so much
        return bytes(answer)
    finally:
        writer.transport.abort()


async def _connect(address: Direct) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if isinstance(address, LocalSocket):
        # asyncio itself would take one that cannot accept more for one that has.
        return await asyncio.open_unix_connection(sock=address.connect())
    return await asyncio.open_connection(address.host, address.port)


def _understand(answer: bytes, when: float) -> Reading | Silence:
    body = _body(answer)
    return body if isinstance(body, Silence) else _read(body, when)


def _body(answer: bytes) -> str | Silence:
    """What an HTTP answer has."""
    status, body = _split(answer)
    if status is None:
        return _foreign(f"something that is not HTTP: {answer[:_SHOWN]!r}")
    if status != 200:
        return _foreign(f"HTTP status {status}")
    try:
        return body.decode()
    except UnicodeDecodeError:
        return _no_metrics(repr(body[:_SHOWN]))


def _answered(answer: bytes) -> Answered | Silence:
    status, body = _split(answer)
    if status is None:
        return _foreign(f"something that is not HTTP: {answer[:_SHOWN]!r}")
    return Answered(status, remote_processes.printable(body.decode(errors="replace").strip()))


def _split(answer: bytes) -> tuple[int | None, bytes]:
    """The status of an HTTP answer, None of what is none, and its body."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = re.match(rb"HTTP/1\.[01] (\d{3})", head)
    is_one = status is not None and len(answer) <= _MOST_BYTES
    return int(status[1]) if status is not None and is_one else None, body


def _read(text: str, when: float) -> Reading | Silence:
    """What a process's page tells."""
    places: dict[Place, dict[Key, float]] = {}
    process = {}
    try:
        for name, labels_text, value in _samples(text):
            if name.startswith("process_") and not labels_text:
                process[name] = _finite(value)
            elif name in _LABELS:
                labels = dict(_LABEL.findall(labels_text))
                place = _ROLES[labels["role"]], int(labels["rank"])
                values = [(label, labels[label]) for label in _LABELS[name]]
                key = (
                    name,
                    tuple(
                        remote_processes.printable(v) if label in _TEXTS else int(v)
                        for label, v in values
                    ),
                )
                places.setdefault(place, {})[key] = _finite(value)
    except (ValueError, KeyError):
        return _no_metrics(repr(text[:_SHOWN]))
    if not places and not process:
        return _foreign("no metrics")
    return Reading(when, places, process)


def _samples(text: str) -> Iterator[tuple[str, str, str]]:
    """The name, the labels and the value of each line that is not a comment."""
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            raise ValueError(f"{line[:_SHOWN]!r} is not a sample")
        yield sample[1], sample[2] or "", sample[3]


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a measured value")
    return value


def _no_metrics(begin: str) -> Silence:
    return _foreign(f"something that is not a list of metrics: {begin}")


def _foreign(what: str) -> Silence:
    return Silence(f"is not a process of a job: it answered with {what}")
