"""What `python -m tf_byteps.timeline` does: merges timelines, and prints what a step is made of."""

import argparse
import collections
import os
import statistics
import sys
from collections.abc import Iterable, Sequence

from tf_byteps import timeline
from tf_byteps.errors import BytePSError
from tf_byteps.files import write_whole
from tf_byteps.timeline import Part

MERGED = "merged.json"


def steps_of(parts: Iterable[Part]) -> list[list[Part]]:
    """The steps of one worker: a step is what has the same round.

    Args:
        parts: `timeline.Part`s of a worker.

    Returns:
        A list of lists of `Part`, by round.
    """
    steps = collections.defaultdict(list)
    for part in parts:
        steps[part.round].append(part)
    return [steps[number] for number in sorted(steps)]


def covered(spans: Iterable[tuple[int, int]]) -> int:
    """How long at least one of some (begin, end) lasts.

    Example:

    >>> covered([(0, 4), (2, 5), (8, 9)])
    6
    """
    total, reached = 0, None
    for begin, end in sorted(spans):
        if reached is None or begin > reached:
            reached = begin
        total += max(0, end - reached)
        reached = max(reached, end)
    return total


def breakdown(parts):
    """What the steps of one worker are made of.

    Args:
        parts: its `timeline.Part`s.

    Returns:
        A dict of medians over its steps, in nanoseconds: "step", from one step's first exchange to
        the next one's (None with a single step), "exchange", with an exchange in flight, and
        "stages", with a part in that stage, by name. And "last", the tensor that most often ends
        last.
    """
    steps = steps_of(parts)
    begins = [min(part.enqueued for part in step) for step in steps]
    lengths = [after - before for before, after in zip(begins, begins[1:]) if after > before]
    spans = [(part.enqueued, part.done) for part in parts]
    in_stage = {name: [] for name, _ in timeline.STAGES}
    for step in steps:
        found = collections.defaultdict(list)
        for part in step:
            for name, begin, end in part.stages():
                found[name].append((begin, end))
        for name, times in in_stage.items():
            times.append(covered(found[name]))
    last = collections.Counter(max(step, key=lambda part: part.done).tensor for step in steps)
    return {
        "steps": len(steps),
        "step": statistics.median(lengths) if lengths else None,
        "exchange": covered(spans) / len(steps),
        "stages": {n: statistics.median(times) for n, times in in_stage.items() if any(times)},
        "last": last.most_common(1)[0][0],
    }


def _lines(parts):
    by_worker = collections.defaultdict(list)
    for part in parts:
        by_worker[part.worker].append(part)
    for worker in sorted(by_worker):
        found = breakdown(by_worker[worker])
        step = f"a step takes {_ms(found['step'])}; " if found["step"] else ""
        yield f"worker {worker}, {found['steps']} steps: {step}exchanges {_ms(found['exchange'])}"
        for name, time in found["stages"].items():
            yield f"  {name:12}{_ms(time):>12}"
        yield f"  most often last: {found['last']}"
    yield "Stages of different parts overlap: each line is the time with at least one part in it."


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
        "--output", metavar="FILE", help=f"the merged timeline (default: {MERGED} in a directory)"
    )
    given = parser.parse_args(arguments)
    output = given.output
    if output is None and os.path.isdir(given.path):
        output = os.path.join(given.path, MERGED)
    try:
        parts = timeline.read(given.path)
        if not parts:
            raise BytePSError(f"{given.path} has no exchange: nothing was recorded")
        print("\n".join(_lines(parts)))
        if output is not None:
            workers = sorted({part.worker for part in parts})
            write_whole(output, timeline.trace(parts, workers=workers))
            print(f"all in one: {output}")
    except (BytePSError, OSError) as error:
        print(f"tf_byteps.timeline: {error}", file=sys.stderr)
        return 1
    return 0
