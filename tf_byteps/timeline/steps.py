"""The steps of a recorded training: where they begin and end, and what they are made of."""

import bisect
import collections
import dataclasses
import statistics
from collections.abc import Iterable, Sequence

from tf_byteps.timeline.parts import InputWait, Part


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of one worker; times as the parts have them.

    Attributes:
        begin: where the one before ends.
        last: the last gradient was computed.
        end: the last sum was there.
        input: nanoseconds of it in which the training waited for a batch.
        parts: its gradients.
    """

    begin: int
    last: int
    end: int
    input: int
    parts: Sequence[Part] = dataclasses.field(repr=False)

    @property
    def identity(self) -> tuple[int, int]:
        """Membership epoch and round: the same on all workers."""
        return self.parts[0].epoch, self.parts[0].round

    @property
    def length(self) -> int:
        """In nanoseconds."""
        return self.end - self.begin

    @property
    def exposed(self) -> int:
        """Exposed communication: nothing was left but to wait for sums."""
        return self.end - self.last

    @property
    def compute(self) -> int:
        """All that is neither."""
        return self.length - self.exposed - self.input


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


def rounds_of(parts: Iterable[Part]) -> list[list[Part]]:
    """The parts of one worker: a list for each round, by membership epoch and number."""
    rounds = collections.defaultdict(list)
    begins: dict[int, int] = {}
    for part in parts:
        rounds[part.epoch, part.round].append(part)
        begins[part.epoch] = min(part.enqueued, begins.get(part.epoch, part.enqueued))
    return [rounds[key] for key in sorted(rounds, key=lambda key: (begins[key[0]], key[1]))]


def by_workers(parts: Iterable[Part]) -> dict[int, list[Part]]:
    """The parts of each worker, by rank."""
    found: dict[int, list[Part]] = {}
    for part in sorted(parts, key=lambda part: part.worker):
        found.setdefault(part.worker, []).append(part)
    return found


def gradients(parts: Iterable[Part]) -> list[Part]:
    """The gradients; where nothing is named so, all sums."""
    sums = [part for part in parts if part.kind == "sum"]
    return [part for part in sums if _is_gradient(part)] or sums


def _is_gradient(part: Part) -> bool:
    name = f"/{part.tensor}"
    return part.kind == "sum" and ("/gradient/" in name or "/gradient@" in name)


def without_start(parts: Iterable[Part]) -> list[Part]:
    """The parts but for those before a worker's first gradient of a membership epoch.

    Those exchange initial values, and what the workers agree on. Where nothing is named a gradient,
    all stay.
    """
    parts = list(parts)
    first: dict[tuple[int, int], int] = {}
    for part in filter(_is_gradient, parts):
        key = part.worker, part.epoch
        first[key] = min(part.enqueued, first.get(key, part.enqueued))
    return [part for part in parts if part.enqueued >= first.get((part.worker, part.epoch), 0)]


def steps_of(parts: Iterable[Part], waits: Iterable[InputWait] = ()) -> list[Step]:
    """A worker's steps but for the first of each membership epoch, whose begin nobody knows.

    Args:
        parts: a worker's.
        waits: the same worker's. What it fetches after a step's first gradient is for the next one.

    Returns:
        In their order. Steps that overlap are left out.
    """
    spans = sorted((wait.begin, wait.end) for wait in waits)
    begins = [begin for begin, _ in spans]
    found, before, epoch = [], None, None
    for of_round in rounds_of(gradients(parts)):
        end = max(part.done for part in of_round)
        first = min(part.enqueued for part in of_round)
        if of_round[0].epoch != epoch:
            before, epoch = None, of_round[0].epoch
        if before is not None and first >= before:
            last = max(part.computed or part.enqueued for part in of_round)
            # One that had begun in the step before may end in this one.
            begun = max(0, bisect.bisect_left(begins, before) - 1)
            these = spans[begun : bisect.bisect(begins, first)]
            waited = covered((max(b, before), min(e, first)) for b, e in these)
            found.append(Step(before, min(last, end), end, waited, of_round))
        before = end
    return found


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a step in the middle is made of; medians in nanoseconds, as `Step` has them."""

    length: float
    compute: float
    exposed: float
    input: float


def cost_of(steps: Sequence[Step]) -> Cost | None:
    """The medians over a worker's steps; None: there are none, or they overlap."""
    if not steps:
        return None
    length = statistics.median(step.length for step in steps)
    exposed = statistics.median(step.exposed for step in steps)
    waited = statistics.median(step.input for step in steps)
    return Cost(length, max(0.0, length - exposed - waited), exposed, waited)
