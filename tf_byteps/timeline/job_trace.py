"""One trace of a whole job: a track for each stage and process, flows, steps, bytes in flight.

Many parts are in a stage at a time. On its track each part has the time from the end of the one
before, if that is later than its own begin: what lies on top of each other elsewhere is here a row
of parts in the order in which they ended. The arguments of a slice tell its own begin.
"""

import collections
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tf_byteps.events import Event
from tf_byteps.timeline.clocks import Clock, Process
from tf_byteps.timeline.parts import STAGES, InputWait, OuterRound, Part, PythonStep
from tf_byteps.timeline.recording import Recording, name_of
from tf_byteps.timeline.scheduler_recorder import PID
from tf_byteps.timeline.server_recorder import FIRST_PID, Served
from tf_byteps.timeline.steps import by_workers, steps_of

FORMAT = "tf_byteps job timeline 1"

_TRACKS = ("step", "python", "outer rounds", "input", *(name for name, _ in STAGES), "arrive")
_OF_FLOWS = ("push", "sum", "pull")
# Viewers count in microseconds, and pile up what takes none.
_LEAST_NS = 1000
# Of which rates are means.
_RATE_NS = 1_000_000
_Identity = tuple[int, str, int, int, int]  # server, tensor, part, epoch, round
_Exchange = tuple[_Identity, int]  # and the worker
_Span = tuple[int, int, str, Any]  # end, begin, name, and the exchange or sum that it is of
_Tracks = dict[tuple[int, str], list[_Span]]  # by process and stage
_Ends = dict[tuple[str, Any], tuple[int, int, dict[str, int]]]  # where flows begin and end


def job_trace(recording: Recording) -> Iterator[str]:
    """The lines of the job's trace. What a server has not recorded, workers' parts tell."""
    parts, waits = recording.parts, recording.waits
    recorded = {_exchange(s): s for s in (*map(_of_part, parts), *recording.served)}
    pushes = [s for s in recorded.values() if s.server >= 0 and s.answered]
    times = [p.enqueued for p in parts] + [s.arrival_began for s in pushes]
    times += [span.begin for span in (*waits, *recording.python, *recording.outer)]
    times += [event.time for event in recording.events]
    origin = min(times, default=0)
    about = {"format": FORMAT, "begin_ns": origin, "clocks": _described(recording.clocks)}
    yield f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(about)}, "traceEvents": ['
    separator = ""
    events = _events(parts, pushes, waits, recording.python, recording.outer)
    for event in (*events, *_of_scheduler(recording.events)):
        if "ts" in event:
            event["ts"] = (event["ts"] - origin) / 1e3
        yield separator + json.dumps(event)
        separator = ","
    yield "]}"


def _described(clocks: Mapping[Process, Clock]) -> dict[str, dict[str, float | None]]:
    return {
        name_of(process): {
            "offset_ns": clock.offset_ns,
            "drift_ppm": round(clock.drift_ppm, 3),
            "error_ns": clock.error_ns,
        }
        for process, clock in clocks.items()
    }


def _labels(what: str, name: str, place: int, where: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """A name, and the place among others: some viewers would go by names."""
    yield {"ph": "M", "name": f"{what}_name", **where, "args": {"name": name}}
    yield {"ph": "M", "name": f"{what}_sort_index", **where, "args": {"sort_index": place}}


def _of_scheduler(events: Iterable[Event]) -> Iterator[dict[str, Any]]:
    """A track of what it has noticed."""
    for number, event in enumerate(events):
        if number == 0:
            yield from _labels("process", "scheduler", 0, {"pid": PID})
            yield from _labels("thread", "events", 0, {"pid": PID, "tid": 0})
        arguments = {"message": event.message, **event.fields}
        shown = {"ph": "i", "s": "p", "name": event.event, "cat": "event", "pid": PID, "tid": 0}
        yield {**shown, "ts": event.time, "args": arguments}


def _of_part(part: Part) -> Served:
    times = [part.arrival_began or 0, part.arrived or 0, 0, part.answered or 0]
    names = (part.server, part.tensor, part.part, part.round, part.worker, part.status)
    return Served(*names, *times, epoch=part.epoch)


def _identity(of: Part | Served) -> _Identity:
    return of.server, of.tensor, of.part, of.epoch, of.round


def _exchange(of: Part | Served) -> _Exchange:
    return _identity(of), of.worker


def _events(
    parts: Sequence[Part],
    pushes: Sequence[Served],
    waits: Sequence[InputWait],
    python: Sequence[PythonStep],
    outer: Sequence[OuterRound],
) -> Iterator[dict[str, Any]]:
    tracks: _Tracks = collections.defaultdict(list)
    made_of = _add_steps(tracks, parts, waits)
    for step in python:
        tracks[step.worker, "python"].append((step.end, step.begin, f"batch {step.batch}", None))
    for each in outer:
        name = f"fragment {each.fragment}"
        tracks[each.worker, "outer rounds"].append((each.end, each.begin, name, None))
    for part in parts:
        key = _exchange(part)
        for name, begin, end in part.stages():
            tracks[part.worker, name].append((end, begin, _title(part), key))
    _add_sums(tracks, pushes)
    ends: _Ends = {}
    for pid in sorted({pid for pid, _ in tracks}):
        role = f"server {pid - FIRST_PID}" if pid >= FIRST_PID else f"worker {pid}"
        yield from _labels("process", role, pid + 1, {"pid": pid})
    for (pid, stage), spans in sorted(tracks.items(), key=lambda item: item[0]):
        yield from _slices(pid, stage, spans, made_of, ends)
    yield from _flows(parts, ends)
    yield from _in_flight(parts)
    yield from _rates(parts, pushes)


def _add_steps(
    tracks: _Tracks, parts: Sequence[Part], waits: Sequence[InputWait]
) -> dict[tuple[int, int], dict[str, float]]:
    """Adds steps and waits for input; returns what each step is made of, by worker and end."""
    made_of = {}
    for worker, of_worker in by_workers(parts).items():
        own = [wait for wait in waits if wait.worker == worker]
        tracks[worker, "input"] = [(wait.end, wait.begin, "input", None) for wait in own]
        for number, step in enumerate(steps_of(of_worker, own)):
            tracks[worker, "step"].append((step.end, step.begin, f"step {number}", None))
            names = ("compute", "exposed", "input")
            made_of[worker, step.end] = {f"{n}_ms": getattr(step, n) / 1e6 for n in names}
    return made_of


def _add_sums(tracks: _Tracks, pushes: Sequence[Served]) -> None:
    """Adds what arrives at servers, and what they add up."""
    sums: dict[_Identity, list[Served]] = collections.defaultdict(list)
    for push in pushes:
        name = f"{_title(push)} of worker {push.worker}"
        tracks[FIRST_PID + push.server, "arrive"].append(
            (push.arrived, push.arrival_began, name, None)
        )
        sums[_identity(push)].append(push)
    for key, of_round in sums.items():
        begin = min(push.arrival_began for push in of_round)
        end = max(begin, min(push.answered for push in of_round))
        tracks[FIRST_PID + key[0], "sum"].append((end, begin, _title(of_round[0]), key))


def _slices(
    pid: int,
    stage: str,
    spans: Sequence[_Span],
    made_of: Mapping[tuple[int, int], Mapping[str, float]],
    ends: _Ends,
) -> Iterator[dict[str, Any]]:
    """A track. Notes in `ends` where what is on it begins and ends."""
    where = {"pid": pid, "tid": _TRACKS.index(stage)}
    yield from _labels("thread", stage, where["tid"], where)
    reached = 0
    for end, begin, name, key in sorted(spans, key=lambda span: span[:3]):
        shown = min(max(begin, reached), end)
        reached = end
        if end - shown < _LEAST_NS and stage not in _OF_FLOWS:
            continue
        took = {"began_earlier_ms": (shown - begin) / 1e6}
        if stage == "step":
            took |= made_of[pid, end]
        slice_ = {"ph": "X", "name": name, "cat": stage, "ts": shown, **where, "args": took}
        yield {**slice_, "dur": (end - shown) / 1e3}
        if key is not None:
            ends[f"{stage} {pid >= FIRST_PID}", key] = (shown, end, where)


def _title(of: Part | Served) -> str:
    return f"{of.tensor} part {of.part} round {of.round}"


def _flows(
    parts: Sequence[Part], ends: Mapping[tuple[str, Any], tuple[int, int, dict[str, int]]]
) -> Iterator[dict[str, Any]]:
    """From each worker's push through the server's sum to its result."""
    for number, part in enumerate(parts):
        key = _exchange(part)
        push, pull = ends.get(("push False", key)), ends.get(("pull False", key))
        summed = ends.get(("sum True", key[0]))
        if not (push and pull and summed and push[0] <= summed[1] <= pull[1]):
            continue  # it failed, or came too late for its round
        flow = {"name": "exchange", "cat": "flow", "id": number}
        yield {"ph": "s", **flow, "ts": push[0], **push[2]}
        yield {"ph": "t", **flow, "ts": summed[1], **summed[2]}
        yield {"ph": "f", "bp": "e", **flow, "ts": pull[1], **pull[2]}


def _in_flight(parts: Iterable[Part]) -> Iterator[dict[str, Any]]:
    changes: dict[int, list[tuple[int, int]]] = collections.defaultdict(list)
    for part in parts:
        if part.pushed:
            changes[part.worker].append((part.pushed, part.bytes))
            changes[part.worker].append((part.reply_received or part.done, -part.bytes))
    for worker, of_worker in changes.items():
        total = 0
        for time, change in sorted(of_worker, key=lambda c: (c[0], -c[1])):
            total += change
            counter = {"ph": "C", "name": "bytes in flight", "pid": worker, "ts": time}
            yield {**counter, "args": {"bytes": total}}


def _rates(parts: Iterable[Part], pushes: Iterable[Served]) -> Iterator[dict[str, Any]]:
    """How fast bytes come in: sums at workers, parts at servers; while they do."""
    spans: dict[int, list[tuple[int, int, int]]] = collections.defaultdict(list)
    sizes = {_exchange(part): part.bytes for part in parts}
    for part in parts:
        if part.reply_began and part.reply_received:
            spans[part.worker].append((part.reply_began, part.reply_received, part.bytes))
    for push in pushes:
        size = sizes.get(_exchange(push), 0)
        spans[FIRST_PID + push.server].append((push.arrival_began, push.arrived, size))
    for pid, of_process in spans.items():
        origin = min(begin for begin, _, _ in of_process)
        bins: dict[int, float] = collections.defaultdict(float)
        for begin, end, size in of_process:
            for number, share in _shares(begin - origin, max(begin + 1, end) - origin):
                bins[number] += size * share
        for number in sorted({*bins, *(number + 1 for number in bins)}):
            rate = bins.get(number, 0.0) / _RATE_NS * 1e3  # bytes in a nanosecond are GB/s
            counter = {"ph": "C", "name": "MB/s in", "pid": pid, "ts": origin + number * _RATE_NS}
            yield {**counter, "args": {"MB/s": round(rate, 3)}}


def _shares(begin: int, end: int) -> Iterator[tuple[int, float]]:
    """Which share of a span lies in each stretch of `_RATE_NS`, by its number."""
    for number in range(begin // _RATE_NS, (end - 1) // _RATE_NS + 1):
        inside = min(end, (number + 1) * _RATE_NS) - max(begin, number * _RATE_NS)
        yield number, inside / (end - begin)
