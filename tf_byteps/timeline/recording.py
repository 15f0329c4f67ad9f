"""What all processes of a job have recorded, by the first worker's clock."""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tf_byteps.errors import BytePSError
from tf_byteps.events import Event
from tf_byteps.timeline.clocks import Clock, Process, align, aligned, aligned_served, aligned_span
from tf_byteps.timeline.files import (
    SCHEDULER,
    SERVERS,
    WORKERS,
    about,
    ends_early,
    events_of,
    files_in,
    left_out,
    session_of,
)
from tf_byteps.timeline.parts import (
    InputWait,
    OuterRound,
    Part,
    PythonStep,
    read,
    read_inputs,
    read_outer_rounds,
    read_python_steps,
)
from tf_byteps.timeline.server_recorder import Served

_SCHEDULER: Process = ("scheduler", 0)


@dataclasses.dataclass(frozen=True)
class Recording:
    """A job's recording; all times are by the first worker's clock.

    Attributes:
        parts: all workers'.
        served: all servers'.
        waits: all workers', for input.
        python: the steps of all workers, as Python called them.
        outer: all workers' outer rounds.
        events: the scheduler's.
        clocks: how far the processes' clocks are apart.
    """

    parts: Sequence[Part]
    served: Sequence[Served]
    waits: Sequence[InputWait]
    python: Sequence[PythonStep]
    outer: Sequence[OuterRound]
    events: Sequence[Event]
    clocks: Mapping[Process, Clock]


def recording_of(path: str) -> Recording:
    """Reads a folder of `BYTEPS_TIMELINE`, or a worker's file.

    Raises:
        BytePSError: it is not a timeline, or nothing was recorded.
        OSError: it cannot be read.
    """
    parts = read(path)
    if not parts:
        raise BytePSError(f"{path} has no exchange: nothing was recorded")
    is_folder = os.path.isdir(path)
    places = _places(files_in(path, WORKERS, SERVERS)) if is_folder else {}
    clocks = align(parts, places)
    served = list(_args(path, SERVERS, "served")) if is_folder else []
    events = [Event(**event) for event in _args(path, SCHEDULER, "event")] if is_folder else []
    if events:
        clocks = {**clocks, _SCHEDULER: _clock_of_scheduler(path, clocks, places)}
    ahead = clocks[_SCHEDULER].ahead if events else int
    return Recording(
        [aligned(part, clocks, places) for part in parts],
        [aligned_served(Served(**each), clocks, places) for each in served],
        [aligned_span(wait, clocks, places) for wait in read_inputs(path)],
        [aligned_span(step, clocks, places) for step in read_python_steps(path)],
        [aligned_span(each, clocks, places) for each in read_outer_rounds(path)],
        [dataclasses.replace(event, time=event.time - ahead(event.time)) for event in events],
        clocks,
    )


def notes_of(path: str, recording: Recording) -> Iterator[str]:
    """What is missing: the ends of files, and whole ones."""
    is_folder = os.path.isdir(path)
    paths = [path]
    if is_folder:
        paths = [each for kind in (WORKERS, SERVERS, SCHEDULER) for each in files_in(path, kind)]
    for each in paths:
        if ends_early(each):
            yield (
                f"note: {os.path.basename(each)} ends early: its process was killed, or still "
                "runs. All whole events are here"
            )
    if earlier := [os.path.basename(each) for each in left_out(path)] if is_folder else []:
        yield f"note: left out, as they are of an earlier run: {', '.join(earlier)}"
    covered = {each.worker for each in recording.served}
    for worker in sorted(covered - {part.worker for part in recording.parts}):
        yield f"note: worker {worker} has left no file: only servers tell of it"


def name_of(process: Process) -> str:
    """ "worker 1", or "worker 1 (process 2)" of one that has taken its place."""
    role, rank = process
    if process == _SCHEDULER:
        return role
    role, _, number = role.partition(" ")
    return f"{role} {rank}" + (f" (process {number[1:-1]})" if number else "")


def _args(path: str, pattern: str, category: str) -> Iterator[dict]:
    for each in files_in(path, pattern):
        for event in events_of(each):
            if event.get("cat") == category:
                yield event["args"]


def _places(paths: Iterable[str]) -> dict[tuple[str, int, int], Process]:
    """Which process had which rank in which membership epoch: the second of a rank is another one.

    Args:
        paths: files, in the order in which they began.
    """
    places: dict[tuple[str, int, int], Process] = {}
    seen: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for path in paths:
        said, session = about(path), session_of(path)
        role = "worker" if "worker" in said else "server"
        before = seen.setdefault((role, said[role]), [])
        process = session.host, session.process
        if process not in before:
            before.append(process)
        number = before.index(process) + 1
        name = role if number == 1 else f"{role} ({number})"
        places[role, said[role], session.epoch] = name, said[role]
    return places


def _clock_of_scheduler(
    path: str, clocks: Mapping[Process, Clock], places: Mapping[tuple[str, int, int], Process]
) -> Clock:
    """That of a process on its host: it exchanges nothing that would tell."""
    host = session_of(files_in(path, SCHEDULER)[0]).host
    for each in files_in(path, WORKERS, SERVERS):
        said, session = about(each), session_of(each)
        role = "worker" if "worker" in said else "server"
        process = places[role, said[role], session.epoch]
        if session.host == host and process in clocks:
            return clocks[process]
    return Clock(((0, 0),), None)
