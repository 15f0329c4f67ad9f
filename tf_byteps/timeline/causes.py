"""Why a step waits: for some moments of it, what stood between it and its last sum.

At each moment the last tensor of the step is somewhere. If it is before its turn, parts that have
not arrived hold it up, because their credit comes back then. If it waits at its server for another
worker, it is what holds up that worker's part. So one comes from moment to cause, over as many
workers as it takes. The causes of many moments, counted, say what the time went to.
"""

import bisect
import collections
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tf_byteps.timeline.parts import InputWait, Part
from tf_byteps.timeline.steps import Step, covered

_MOMENTS = 12  # of each step
_MOST_STEPS = 50  # of which moments are taken
# A step so much longer than others compiles or saves: it says nothing about them.
_UNUSUAL = 4
_MOST_LINKS = 20  # from a moment to its cause
# Where two links of the same kind differ by less, neither is the slow one.
_SLOWER = 2.0


class Cause(NamedTuple):
    """What a step may wait for.

    Attributes:
        kind: "compute", "input", "credit", "link", "latency", "sum" or a stage; of links "worker
            link" or "server link", if it is known whose is the slow one.
        worker: whose; -1: no one's.
        server: the other end, or whose; -1: no one's.
    """

    kind: str
    worker: int = -1
    server: int = -1


class _Round:
    """The gradients of one round, on all workers."""

    def __init__(self, steps: Mapping[int, Step]) -> None:
        self.steps = steps
        self.parts = {w: sorted(s.parts, key=lambda p: p.pushed or 0) for w, s in steps.items()}
        self.pushed = {w: [p.pushed or 0 for p in parts] for w, parts in self.parts.items()}
        self.same: dict[tuple[str, int], dict[int, Part]] = collections.defaultdict(dict)
        for worker, parts in self.parts.items():
            for part in parts:
                self.same[part.tensor, part.part][worker] = part

    def not_arrived(self, worker: int, time: int) -> list[Part]:
        """A worker's parts that are pushed and not at their servers yet: the oldest first."""
        pushed = self.parts[worker][: bisect.bisect(self.pushed[worker], time)]
        return [part for part in pushed if part.pushed and time < (part.arrived or part.done)]

    def is_busy(self, worker: int, server: int, time: int) -> bool:
        """Whether bytes of gradients travel over the link of one of the two."""
        return any(
            begin <= time < end
            for parts in self.parts.values()
            for part in parts
            if part.worker == worker or part.server == server
            for begin, end in travels(part)
        )

    def last_to_arrive(self, part: Part) -> Part:
        """The same part of the worker that came last."""
        return max(self.same[part.tensor, part.part].values(), key=lambda p: p.arrived or 0)


def travels(part: Part) -> list[tuple[int, int]]:
    """When a part's bytes, and those of its sum, came in at the other end."""
    spans = [(part.arrival_began, part.arrived), (part.reply_began, part.reply_received)]
    return [(begin, end) for begin, end in spans if begin and end]


def of_steps(
    worker: int,
    steps: Mapping[int, Sequence[Step]],
    waits: Mapping[int, Sequence[InputWait]],
    credits: Mapping[int, int],
) -> dict[Cause, dict[str, float]]:
    """What the steps of a worker waited for after their last gradients.

    Args:
        worker: its rank.
        steps: all workers'. All times are by one clock.
        waits: all workers', for input.
        credits: all workers', in bytes.

    Returns:
        For each cause, how long a step of the worker waits for it on average, in nanoseconds, by
        the tensor that was last.
    """
    rounds = {w: {step.identity: step for step in of} for w, of in steps.items()}
    spans = {w: sorted((wait.begin, wait.end) for wait in of) for w, of in waits.items()}
    middle = statistics.median(step.length for step in steps[worker])
    usual = [step for step in steps[worker] if step.length <= _UNUSUAL * middle]
    chosen = usual[:: 1 + (len(usual) - 1) // _MOST_STEPS]
    found: dict[Cause, dict[str, float]] = {}
    for step in chosen:
        number = step.identity
        there = _Round({w: of[number] for w, of in rounds.items() if number in of})
        part = max(step.parts, key=lambda part: (part.done, part.reply_received or 0))
        for moment in range(_MOMENTS):
            time = step.last + step.exposed * (2 * moment + 1) // (2 * _MOMENTS)
            cause = _at(there, spans, credits, part, time)
            by_tensor = found.setdefault(cause, collections.defaultdict(float))
            by_tensor[part.tensor] += step.exposed / _MOMENTS / len(chosen)
    return found


def _at(
    there: _Round,
    waits: Mapping[int, Sequence[tuple[int, int]]],
    credits: Mapping[int, int],
    part: Part,
    time: int,
) -> Cause:
    """What holds up a part at a time."""
    for _ in range(_MOST_LINKS):
        worker, server = part.worker, part.server
        if time < there.steps[worker].begin:
            return Cause("link", worker, server)  # it still lacks sums that others have
        if time < part.enqueued:
            asked = bisect.bisect(waits.get(worker, []), (time, 1 << 80))
            is_input = asked > 0 and time < waits[worker][asked - 1][1]
            return Cause("input" if is_input else "compute", worker)
        stage = _stage(part, time)
        if stage == "queue":
            travelling = there.not_arrived(worker, time)
            if travelling and there.is_busy(worker, travelling[0].server, time):
                return Cause("link", worker, travelling[0].server)
            next_bytes = max(each.bytes for each in there.parts[worker])
            taken = sum(each.bytes for each in travelling) + next_bytes
            # A worker that is ahead of the others has half of its credit.
            is_full = taken > credits.get(worker, taken) / 2
            return Cause("credit") if is_full else Cause("queue", worker)
        if stage in ("push", "pull"):
            if there.is_busy(worker, server, time):
                return Cause("link", worker, server)
            return Cause("latency", server=server)
        if stage != "sum":
            return Cause(stage, worker)
        latest = there.last_to_arrive(part)
        if latest is part or time >= (latest.arrived or 0):
            return Cause("sum", server=server)
        part = latest
    return Cause("queue", part.worker)


def _stage(part: Part, time: int) -> str:
    for name, begin, end in part.stages():
        if begin <= time < end:
            return name
    return "other parts"


class Rates:
    """How fast bytes travelled between each worker and each server, while they did."""

    def __init__(self, parts: Iterable[Part]) -> None:
        amounts = collections.defaultdict(int)
        spans = collections.defaultdict(list)
        for part in parts:
            for span in travels(part):
                amounts[part.worker, part.server] += part.bytes
                spans[part.worker, part.server].append(span)
        self._rates = {pair: amounts[pair] * 1e9 / max(1, covered(spans[pair])) for pair in amounts}

    def whose(self, cause: Cause) -> Cause:
        """The cause "link", as the link of the server or the worker, if that is the slow one."""
        worker, server = cause.worker, cause.server
        own = self._rates.get((worker, server), 0.0)
        others = [r for (w, s), r in self._rates.items() if w == worker and s != server]
        if others and statistics.median(others) >= _SLOWER * own:
            return Cause("server link", server=server)
        others = [r for (w, s), r in self._rates.items() if w != worker and s == server]
        if others and statistics.median(others) >= _SLOWER * own:
            return Cause("worker link", worker=worker)
        return Cause("link", server=server)

    def beside_others(self, cause: Cause) -> tuple[float, float]:
        """Bytes per second over the link of a server or a worker, and over others of its kind."""
        place = 0 if cause.server < 0 else 1
        own = [rate for pair, rate in self._rates.items() if pair[place] == cause[1 + place]]
        others = [rate for pair, rate in self._rates.items() if pair[place] != cause[1 + place]]
        return statistics.median(own or [0.0]), statistics.median(others or [0.0])
