"""What `python -m tf_byteps.timeline` does: merges timelines, and prints what a step is made of."""

import argparse
import collections
import os
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tf_byteps.errors import BytePSError
from tf_byteps.files import write_whole
from tf_byteps.timeline.job_trace import job_trace
from tf_byteps.timeline.parts import STAGES, Part, read_credits, read_threads
from tf_byteps.timeline.recording import notes_of, recording_of
from tf_byteps.timeline.steps import (
    by_workers,
    cost_of,
    covered,
    rounds_of,
    steps_of,
    without_start,
)

MERGED = "job.json"
_NOTHING_DONE = 2
_SLOWEST = 3


def breakdown(parts: Any) -> dict[Any, Any]:
    """What the steps of one worker are made of.

    Args:
        parts: its `Part`s.

    Returns:
        A dict of medians over its steps, in nanoseconds: "step", from one step's first exchange to
        the next one's (None with a single step), "exchange", with an exchange in flight, and
        "stages", with a part in that stage, by name. And "last", the tensor that most often ends
        last.
    """
    steps = rounds_of(parts)
    begins = [min(part.enqueued for part in step) for step in steps]
    lengths = [after - before for before, after in zip(begins, begins[1:]) if after > before]
    spans = [(part.enqueued, part.done) for part in parts]
    in_stage = {name: [] for name, _ in STAGES}
    passed = set()  # stages of no length are told, too: those that no part has are not
    for step in steps:
        found = collections.defaultdict(list)
        for part in step:
            for name, begin, end in part.stages():
                found[name].append((begin, end))
        passed.update(found)
        for name, times in in_stage.items():
            times.append(covered(found.get(name, ())))
    last = collections.Counter(max(step, key=lambda part: part.done).tensor for step in steps)
    return {
        "steps": len(steps),
        "step": statistics.median(lengths) if lengths else None,
        "exchange": covered(spans) / len(steps),
        "stages": {n: statistics.median(times) for n, times in in_stage.items() if n in passed},
        "last": last.most_common(1)[0][0],
    }


def _lines(parts: Any, waits: Any) -> Iterator[Any]:
    parts = without_start(parts)
    by_worker = by_workers(parts)
    by_waits = collections.defaultdict(list)
    for wait in waits:
        by_waits[wait.worker].append(wait)
    for worker in by_worker:
        found = breakdown(by_worker[worker])
        step = f"a step takes {_ms(found['step'])}; " if found["step"] else ""
        yield (
            f"worker {worker}, {found['steps']} steps: {step}of a step "
            f"{_ms(found['exchange'])} have exchanges in flight"
        )
        if cost := cost_of(steps_of(by_worker[worker], by_waits[worker])):
            waited = f", input {_ms(cost.input)}" if by_waits[worker] else ""
            yield (
                f"  a step in the middle: {_ms(cost.length)}, of which compute {_ms(cost.compute)}"
                f"{'' if waited else ' (with the wait for input)'}, "
                f"exposed communication {_ms(cost.exposed)}{waited}"
            )
        for name, time in found["stages"].items():
            yield f"  {name:12}{_ms(time):>12}"
        yield f"  most often last: {found['last']}"
    yield "slowest tensors:"
    for tensor, time, stages in slowest(parts):
        shown = ", ".join(f"{name} {_ms(length)}" for name, length in stages.items())
        yield f"  {tensor}: {_ms(time)}: {shown}"
    yield "Stages of different parts overlap: each line is the time with at least one part in it."


def slowest(parts: Iterable[Part]) -> list[tuple[str, float, dict[str, float]]]:
    """The tensors whose exchanges take longest: name, median time, and median of each stage."""
    by_tensor = collections.defaultdict(list)
    for part in parts:
        by_tensor[part.tensor].append(part)
    found = []
    for tensor, of_tensor in by_tensor.items():
        stages = collections.defaultdict(list)
        for part in of_tensor:
            for name, begin, end in part.stages():
                stages[name].append(end - begin)
        medians = {name: statistics.median(times) for name, times in stages.items()}
        time = statistics.median(part.done - part.enqueued for part in of_tensor)
        found.append((tensor, time, medians))
    return sorted(found, key=lambda row: -row[1])[:_SLOWEST]


def _ms(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:.2f} ms"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tf_byteps.timeline",
        description="Prints what a step is made of, and merges the timelines of all workers.",
    )
    parser.add_argument("path", help="a directory of BYTEPS_TIMELINE, or one file of it")
    parser.add_argument(
        "--out", metavar="FILE", help=f"the job's timeline (default: {MERGED} in a directory)"
    )
    parser.add_argument(
        "--explain", action="store_true", help="also say what the steps wait for, and what to do"
    )
    given = parser.parse_args(arguments)
    output = given.out
    if output is None and os.path.isdir(given.path):
        output = os.path.join(given.path, MERGED)
    try:
        recording = recording_of(given.path)
        parts, waits = recording.parts, recording.waits
        for line in (*notes_of(given.path, recording), *_lines(parts, waits)):
            print(line)
        if given.explain:
            from tf_byteps.timeline.explain import explain

            credits, threads = read_credits(given.path), read_threads(given.path)
            print("\n".join(explain(parts, waits, credits, threads)))
        if output is not None:
            write_whole(output, job_trace(recording))
            print(f"all in one: {output}")
    except (BytePSError, OSError) as error:
        print(f"tf_byteps.timeline: {error}", file=sys.stderr)
        return _NOTHING_DONE
    return 0
