"""When each part of each tensor was where: recorded by the engine, written as a Chrome trace.

`BYTEPS_TIMELINE`, or `tf_byteps.start_timeline`, has every worker record and write a file that
Perfetto and chrome://tracing show; `read` gives the same as objects. All times are nanoseconds
since 1970. Those of an arrival and of an answer are by the server's clock, all others by the
worker's: on different machines they differ by what the clocks do.

`python -m tf_byteps.timeline DIR` says what a step is made of, and merges all workers' files.
"""

import dataclasses
import glob
import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from tf_byteps import _engine
from tf_byteps.errors import BytePSError
from tf_byteps.files import GrowingFile, path_for, write_whole

__all__ = ["MAX_PARTS", "Part", "read"]

# Some 50 MB of memory, and 150 MB on disk; what comes later is only counted.
MAX_PARTS = 200_000

FORMAT = "tf_byteps timeline 1"

_logger = logging.getLogger("tf_byteps")
# The last line of a file whose process has ended its recording.
_END = "]}"
_written = set()  # paths of this process's timelines


@dataclasses.dataclass(frozen=True)
class Part:
    """One part of a tensor in one round, on one worker.

    Times are nanoseconds since 1970, or None if it did not happen: the exchange failed before, or
    the job has one worker and no server.

    Attributes:
        worker: rank of the worker.
        tensor: name of the exchange; a gradient's is its variable's path.
        kind: "sum", "min", "max", "broadcast" or "gather".
        dtype: "float32", for example.
        round: how often this tensor had been exchanged before.
        priority: parts of higher priority leave first.
        status: "OK", or how the exchange failed.
        part: number of the part, from 0.
        parts: number of parts of the tensor.
        bytes: what the worker sends for this part.
        server: rank of the server that sums it; -1 if there is none.
        enqueued: TensorFlow had the tensor and handed it to the engine.
        placed: parts and servers were known.
        computed: tensors of a GPU: the GPU had computed the tensor.
        reduced: tensors of a GPU: the workers of this host had reduced it among themselves; in a
            job on one host that is the result.
        copied_out: tensors of a GPU, at the worker that sends the part for its host: it was in
            the host's memory.
        pushed: its turn had come: handed to the network.
        arrival_began: server's clock: the first bytes were there.
        arrived: server's clock: the last byte was there.
        answered: server's clock: all workers' parts were there, the sum was on its way back.
        reply_began: the first bytes of the sum were there.
        reply_received: the last byte of the sum was there.
        copied_in: tensors of a GPU, at the worker that sent the part: the sum was in its GPU.
        broadcast: tensors of a GPU: the sum had come from there to this worker's GPU.
        done: all parts of the tensor were there; TensorFlow went on.
    """

    worker: int
    tensor: str
    kind: str
    dtype: str
    round: int
    priority: int
    status: str
    part: int
    parts: int
    bytes: int
    server: int
    enqueued: int
    placed: int | None
    computed: int | None
    reduced: int | None
    copied_out: int | None
    pushed: int | None
    arrival_began: int | None
    arrived: int | None
    answered: int | None
    reply_began: int | None
    reply_received: int | None
    copied_in: int | None
    broadcast: int | None
    done: int

    def stages(self) -> list[tuple[str, int, int]]:
        """What it went through: (name, begin, end) of each of `STAGES`, as far as it came.

        Each begins where the one before ends. Where clocks of two machines contradict that, a stage
        is empty instead of ending before it begins. Stages of GPUs are those of tensors in their
        memory; a part that another worker sends for this host has no push, sum and pull here.
        """
        found, begin = [], self.enqueued
        for name, field in STAGES:
            end = getattr(self, field)
            if end is None or (field == "done" and not (found and self.status == "OK")):
                continue
            end = min(max(begin, end), self.done)
            found.append((name, begin, end))
            begin = end
        return found


# Names, as in docs/architecture.md, and the time that ends each. A new one needs a row here, where
# it belongs, and a time in `Part`.
STAGES = (
    ("declare", "placed"),
    ("compute", "computed"),
    ("reduce", "reduced"),
    ("copy out", "copied_out"),
    ("queue", "pushed"),
    ("push", "arrived"),
    ("sum", "answered"),
    ("pull", "reply_received"),
    ("copy in", "copied_in"),
    ("broadcast", "broadcast"),
    ("other parts", "done"),
)


class Recorder:
    """Has the engine record, from now to `stop`, what this worker exchanges.

    Args:
        path: where to write, see `tf_byteps.start_timeline`.
        rank: this worker's.
    """

    def __init__(self, path: str | os.PathLike[str], rank: int) -> None:
        self._rank = rank
        self.path = _unwritten(path_for(os.fspath(path), "worker", rank))
        self._dropped = 0
        about = json.dumps({"format": FORMAT, "worker": rank})
        label = json.dumps(_label("process_name", rank, 0, f"worker {rank}"))
        head = f'{{"displayTimeUnit": "ms", "otherData": {about}, "traceEvents": [\n{label}'
        _engine.timeline_start(MAX_PARTS)
        self._file = GrowingFile(self.path, head, self._lines)

    def stop(self) -> str:
        """Writes the file and returns its path.

        Raises:
            OSError: it cannot be written.
        """
        _engine.timeline_stop()
        self._file.end(_END)
        parts, dropped = read(self.path), self._dropped
        if dropped:
            _logger.warning(
                "the timeline %s ends early: it has %d parts of tensors, and %d exchanges came "
                "after them",
                self.path,
                len(parts),
                dropped,
            )
        write_whole(self.path, trace(parts, worker=self._rank, dropped_exchanges=dropped))
        _written.add(self.path)
        return self.path

    def _lines(self) -> Iterator[str]:
        exchanges, dropped = _engine.timeline_take()
        self._dropped += dropped
        for exchange in exchanges:
            for part in _parts(exchange, self._rank):
                yield "," + json.dumps({**_whole(part), "pid": self._rank, "tid": 0})


def read(path: str | os.PathLike[str]) -> list[Part]:
    """Reads what `BYTEPS_TIMELINE` or `tf_byteps.stop_timeline` wrote.

    Args:
        path: a worker's file, or a directory with the files of several.

    Returns:
        A list of `Part`, in the order of `enqueued`.

    Raises:
        BytePSError: it is no timeline, or there is none in the directory.
        OSError: it cannot be read.

    Example:

    >>> for part in tf_byteps.timeline.read("timeline/"):
    ...     print(part.tensor, (part.done - part.enqueued) / 1e6, "ms")
    """
    path = os.fspath(path)
    paths = [path]
    if os.path.isdir(path):
        paths = sorted(glob.glob(os.path.join(glob.escape(path), "worker-*.json")))
        if not paths:
            raise BytePSError(f"{path} has no timeline: no file is named like worker-0.json")
    parts = [part for each in paths for part in _read_file(each)]
    return sorted(parts, key=lambda part: part.enqueued)


def _read_file(path: str) -> list[Part]:
    try:
        parts = [Part(**event["args"]) for event in events_of(path) if event.get("cat") == "part"]
        if all(isinstance(n, int) for p in parts for n in (p.enqueued, p.done, p.worker)):
            return parts
    except (KeyError, TypeError, AttributeError):  # other contents
        pass
    raise BytePSError(f"{path} is not a timeline of tf_byteps, or one of another version")


def events_of(path: str) -> list[dict[str, Any]]:
    """The events in a process's file; in one that is cut off, those before the cut.

    Raises:
        BytePSError: it is no timeline.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        head, _, rest = file.read().partition("\n")
    found: Any = None
    try:
        found = json.loads(head + _END)
        if found["otherData"]["format"] == FORMAT:
            return _whole_events(rest)
    except (ValueError, KeyError, TypeError):  # no JSON, or other contents
        pass
    raise BytePSError(f"{path} is not a timeline of tf_byteps, or one of another version")


def ends_early(path: str) -> bool:
    """Whether a process's file is cut off, in an event or after one."""
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - len(_END) - 1))
        return file.read().strip() != _END.encode()


def _whole_events(text: str) -> list[dict[str, Any]]:
    """One line each, see `trace`; a process that was killed has left the last one unfinished."""
    events = []
    for line in text.splitlines():
        try:
            events.append(json.loads(line.removeprefix(",")))
        except ValueError:  # the end, or the cut
            break
    return events


def _unwritten(path: str) -> str:
    """`path`, or with a number one that this process has not written yet: no recording is lost."""
    root, suffix = os.path.splitext(path)
    number = 1
    while path in _written:
        number += 1
        path = f"{root}.{number}{suffix}"
    return path


def _parts(exchange: dict[str, Any], rank: int) -> Iterator[Part]:
    """The `Part`s of an exchange that the engine has recorded."""
    parts = exchange.pop("parts") or [{}]
    times = {name[: -len("_ns")]: exchange.pop(name) for name in [*exchange] if name[-3:] == "_ns"}
    for number, part in enumerate(parts):
        yield Part(
            **exchange,
            worker=rank,
            part=number,
            parts=len(parts),
            bytes=part.get("bytes", 0),
            server=part.get("server", -1),
            enqueued=times["enqueue"],
            placed=times["place"] or None,
            computed=part.get("computed_ns") or None,
            reduced=part.get("reduce_ns") or None,
            copied_out=part.get("copy_out_ns") or None,
            pushed=part.get("push_ns") or None,
            arrival_began=part.get("arrival_begin_ns") or None,
            arrived=part.get("arrival_end_ns") or None,
            answered=part.get("answer_ns") or None,
            reply_began=part.get("reply_begin_ns") or None,
            reply_received=part.get("reply_end_ns") or None,
            copied_in=part.get("copy_in_ns") or None,
            broadcast=part.get("broadcast_ns") or None,
            done=times["done"],
        )


def trace(parts: Iterable[Part], **about: Any) -> Iterator[str]:
    """The lines of a Chrome trace: a process for each worker.

    Args:
        parts: a list of `Part`.
        **about: what else the file says of itself.
    """
    about = {"format": FORMAT, **about}
    yield f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(about)}, "traceEvents": ['
    separator = ""
    for event in _all_events(parts):
        yield separator + json.dumps(event)
        separator = ","
    yield _END


def _all_events(parts: Iterable[Part]) -> Iterator[dict[str, Any]]:
    """A row for each part of each tensor, the first used on top."""
    rows = {}
    for part in parts:
        rows_of_worker = rows.setdefault(part.worker, {})
        if not rows_of_worker:
            yield _label("process_name", part.worker, 0, f"worker {part.worker}")
        row = (part.tensor, part.part)
        if row not in rows_of_worker:
            rows_of_worker[row] = len(rows_of_worker) + 1
            name = part.tensor if part.parts == 1 else f"{part.tensor} part {part.part}"
            yield _label("thread_name", part.worker, rows_of_worker[row], name)
        for event in _events(part):
            yield {**event, "pid": part.worker, "tid": rows_of_worker[row]}


def _label(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _events(part: Part) -> Iterator[dict[str, Any]]:
    """The exchange of a part, with all that is known of it, and its stages within."""
    yield _whole(part)
    for name, begin, end in part.stages():
        yield {**_span(name, begin, end), "cat": "stage"}


def _whole(part: Part) -> dict[str, Any]:
    span = _span(f"{part.kind} round {part.round}", part.enqueued, part.done)
    return {**span, "cat": "part", "args": dataclasses.asdict(part)}


def _span(name: str, begin: int, end: int) -> dict[str, Any]:
    # Whole microseconds: fractions of so large numbers are rounded by those who read them, and a
    # stage would end outside of its exchange.
    return {"ph": "X", "name": name, "ts": begin // 1000, "dur": end // 1000 - begin // 1000}


if __name__ == "__main__":
    from tf_byteps.timeline_report import main

    sys.exit(main())
