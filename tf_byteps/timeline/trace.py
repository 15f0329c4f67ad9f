"""The Chrome trace of a worker: a row for each part of each tensor."""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

from tf_byteps.timeline.files import END, FORMAT
from tf_byteps.timeline.parts import InputWait, OuterRound, Part, PythonStep

_PYTHON_ROW = 1_000_000  # below those of parts
_OUTER_ROW = _PYTHON_ROW + 1


def trace(
    parts: Iterable[Part],
    waits: Iterable[InputWait] = (),
    steps: Iterable[PythonStep] = (),
    rounds: Iterable[OuterRound] = (),
    **about: Any,
) -> Iterator[str]:
    """The lines of a Chrome trace: a process for each worker.

    Args:
        parts: a list of `Part`.
        waits: for input.
        steps: of Python.
        rounds: outer rounds of local steps.
        **about: what else the file says of itself.
    """
    about = {"format": FORMAT, **about}
    yield f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(about)}, "traceEvents": ['
    separator = ""
    rows = (
        _row("input", map(wait_event, waits)),
        _row("python", map(step_event, steps)),
        _row("outer rounds", map(round_event, rounds)),
    )
    for event in itertools.chain(_all_events(parts), *rows):
        yield separator + json.dumps(event)
        separator = ","
    yield END


def _all_events(parts: Iterable[Part]) -> Iterator[dict[str, Any]]:
    """A row for each part of each tensor, the first used on top."""
    rows = {}
    for part in parts:
        rows_of_worker = rows.setdefault(part.worker, {})
        if not rows_of_worker:
            yield label("process_name", part.worker, 0, f"worker {part.worker}")
        row = (part.tensor, part.part)
        if row not in rows_of_worker:
            rows_of_worker[row] = len(rows_of_worker) + 1
            name = part.tensor if part.parts == 1 else f"{part.tensor} part {part.part}"
            yield label("thread_name", part.worker, rows_of_worker[row], name)
        for event in _events(part):
            yield {**event, "pid": part.worker, "tid": rows_of_worker[row]}


def _row(name: str, events: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    labelled = set()
    for event in events:
        if event["pid"] not in labelled:
            labelled.add(event["pid"])
            yield label("thread_name", event["pid"], event["tid"], name)
        yield event


def label(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _events(part: Part) -> Iterator[dict[str, Any]]:
    """The exchange of a part, with all that is known of it, and its stages within."""
    yield whole_event(part)
    for name, begin, end in part.stages():
        yield {**_span(name, begin, end), "cat": "stage"}


def whole_event(part: Part) -> dict[str, Any]:
    span = _span(f"{part.kind} round {part.round}", part.enqueued, part.done)
    return {**span, "cat": "part", "args": dataclasses.asdict(part)}


def wait_event(wait: InputWait) -> dict[str, Any]:
    span = _span("input", wait.begin, wait.end)
    return {**span, "cat": "input", "pid": wait.worker, "tid": 0, "args": wait._asdict()}


def step_event(step: PythonStep) -> dict[str, Any]:
    span = _span(f"batch {step.batch}", step.begin, step.end)
    return {**span, "cat": "python", "pid": step.worker, "tid": _PYTHON_ROW, "args": step._asdict()}


def round_event(outer: OuterRound) -> dict[str, Any]:
    span = _span(f"outer round of fragment {outer.fragment}", outer.begin, outer.end)
    return {**span, "cat": "outer", "pid": outer.worker, "tid": _OUTER_ROW, "args": outer._asdict()}


def _span(name: str, begin: int, end: int) -> dict[str, Any]:
    # Whole microseconds: fractions of so large numbers are rounded by those who read them, and a
    # stage would end outside of its exchange.
    return {"ph": "X", "name": name, "ts": begin // 1000, "dur": end // 1000 - begin // 1000}
