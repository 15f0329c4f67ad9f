"""What was recorded of parts of tensors and of waits for input, and how to read it from files."""

import dataclasses
import os
from typing import NamedTuple

from tf_byteps.errors import BytePSError
from tf_byteps.timeline.files import WORKERS, about, events_of, files_in


@dataclasses.dataclass(frozen=True)
class Part:
    """One part of a tensor in one round, on one worker.

    Times are nanoseconds since 1970, or None if it did not happen: the exchange failed before, or
    the job has one worker and no server.

    Attributes:
        worker: rank of the worker.
        tensor: name of the exchange; a gradient's is its variable's path.
        kind: "sum", "min", "max", "product", "broadcast", "gather", "alltoall" or "rowsum".
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
        answered: server's clock: all workers' parts were there, the sum was being sent back.
        reply_began: the first bytes of the sum were there.
        reply_received: the last byte of the sum was there.
        copied_in: tensors of a GPU, at the worker that sent the part: the sum was in its GPU.
        broadcast: tensors of a GPU: the sum had come from there to this worker's GPU.
        done: all parts of the tensor were there; TensorFlow went on.
        epoch: the membership epoch: rounds are counted anew in each.
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
    epoch: int = 0

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


class InputWait(NamedTuple):
    """A training waited for a batch: the rank of the worker, begin and end, as `Part` has times."""

    worker: int
    begin: int
    end: int
    epoch: int = 0


class PythonStep(NamedTuple):
    """Keras called a step for a batch of an epoch, and had it back; times as `Part` has them."""

    worker: int
    begin: int
    end: int
    batch: int
    epoch: int = 0


class OuterRound(NamedTuple):
    """An outer round of local steps, from its changes to its result; times as `Part` has them."""

    worker: int
    begin: int
    end: int
    fragment: int
    epoch: int = 0


# Names, as in docs/architecture.md and docs/architecture_gpu.md, and the time that ends each. A new
# one needs a row here, where it belongs, and a time in `Part`.
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


def read(path: str | os.PathLike[str]) -> list[Part]:
    """Reads what `BYTEPS_TIMELINE` or `tf_byteps.stop_timeline` wrote.

    Args:
        path: a worker's file, or a directory with the files of several.

    Returns:
        A list of `Part`, in the order of `enqueued`.

    Raises:
        BytePSError: it is not a timeline, or there is none in the directory.
        OSError: it cannot be read.

    Example:

    >>> for part in tf_byteps.timeline.read("timeline/"):
    ...     print(part.tensor, (part.done - part.enqueued) / 1e6, "ms")
    """
    parts = [part for each in _paths(os.fspath(path)) for part in _read_file(each)]
    return sorted(parts, key=lambda part: part.enqueued)


def read_inputs(path: str | os.PathLike[str]) -> list[InputWait]:
    """Reads when the training of each worker waited for its input.

    Args:
        path: as for `read`.

    Raises:
        BytePSError: as `read`.
        OSError: as `read`.
    """
    return [InputWait(**each) for each in _args(path, "input")]


def read_python_steps(path: str | os.PathLike[str]) -> list[PythonStep]:
    """Reads when Keras called each worker's steps.

    Args:
        path: as for `read`.

    Raises:
        BytePSError: as `read`.
        OSError: as `read`.
    """
    return [PythonStep(**each) for each in _args(path, "python")]


def read_outer_rounds(path: str | os.PathLike[str]) -> list[OuterRound]:
    """Reads when each worker had outer rounds.

    Args:
        path: as for `read`.

    Raises:
        BytePSError: as `read`.
        OSError: as `read`.
    """
    return [OuterRound(**each) for each in _args(path, "outer")]


def _args(path: str | os.PathLike[str], category: str) -> list[dict[str, int]]:
    events = [event for each in _paths(os.fspath(path)) for event in events_of(each)]
    return [event["args"] for event in events if event.get("cat") == category]


def read_credits(path: str | os.PathLike[str]) -> dict[int, int]:
    """Reads how many bytes of each worker might be in flight, as its file says; by rank.

    Args:
        path: as for `read`.

    Raises:
        BytePSError: as `read`.
        OSError: as `read`.
    """
    return _said(path, "credit_bytes")


def read_threads(path: str | os.PathLike[str]) -> dict[int, int]:
    """Reads with how many threads each worker computed, as its file says; by rank.

    Args:
        path: as for `read`.

    Raises:
        BytePSError: as `read`.
        OSError: as `read`.
    """
    return _said(path, "threads")


def _said(path: str | os.PathLike[str], key: str) -> dict[int, int]:
    said = [about(each) for each in _paths(os.fspath(path))]
    return {each["worker"]: each[key] for each in said if each.get(key)}


def _paths(path: str) -> list[str]:
    if not os.path.isdir(path):
        return [path]
    paths = files_in(path, WORKERS)
    if not paths:
        raise BytePSError(f"{path} has no timeline: no file is named like worker-0.json")
    return paths


def _read_file(path: str) -> list[Part]:
    try:
        parts = [Part(**event["args"]) for event in events_of(path) if event.get("cat") == "part"]
        if all(isinstance(n, int) for p in parts for n in (p.enqueued, p.done, p.worker)):
            return parts
    except (KeyError, TypeError, AttributeError):  # other contents
        pass
    raise BytePSError(f"{path} is not a timeline of tf_byteps, or one of another version")
