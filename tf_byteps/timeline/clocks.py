"""How far the clocks of a job's processes are apart, as its exchanges tell.

No push arrives before it was sent, and no reply either: each is a bound for the difference of two
clocks, the closer the less it took. Clocks also run at different speeds. So each gets a line first
(`drift`), or several on end if a recording is long. What is left are bounds that do not
change with time. The closest ones of all pairs together say between which limits a clock lies; its
offset is their middle. As all bounds hold in the middle as well, no push arrives before it was sent
by the clocks so aligned.
"""

import bisect
import collections
import dataclasses
import statistics
import typing
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from tf_byteps.timeline.drift import Line, between
from tf_byteps.timeline.parts import InputWait, OuterRound, Part, PythonStep
from tf_byteps.timeline.server_recorder import Served

Process = tuple[str, int]  # "worker" or "server", and its rank
# Whose clock it is: of a role, a rank and a membership epoch, in which another process may have
# that rank. What is not there has the clock of the role's rank.
Places = Mapping[tuple[str, int, int], Process]
_Bounds = dict[tuple[Process, Process], int]

# In less time no clock moves away by more than exchanges take.
_LEAST_NS = 250_000_000
_MOST_PASSES = 8


class _Message(NamedTuple):
    """Something that one process sent to another: when, by the clock of each."""

    sender: Process
    sent: int
    receiver: Process
    came: int


@dataclasses.dataclass(frozen=True)
class Clock:
    """A process's clock.

    Attributes:
        knots: pairs of a time by this clock, and how many nanoseconds it is ahead of the first
            worker's then; between them, before, and after, it is on a line.
        error_ns: how wrong that may be; None: nothing is known.
    """

    knots: tuple[tuple[int, int], ...]
    error_ns: int | None

    @property
    def offset_ns(self) -> int:
        """How much it is ahead when the recording begins."""
        return self.knots[0][1]

    @property
    def drift_ppm(self) -> float:
        """How much faster it runs than the first worker's, in millionths."""
        (begin, before), (end, after) = self.knots[0], self.knots[-1]
        return (after - before) / (end - begin) * 1e6 if end > begin else 0.0

    def ahead(self, time: int) -> int:
        """How much it is ahead of the first worker's when it shows `time`."""
        if len(self.knots) == 1:
            return self.knots[0][1]
        after = 1
        if len(self.knots) > 2:
            after = bisect.bisect_left(self.knots, (time, 0), 1, len(self.knots) - 1)
        (begin, offset), (end, next_offset) = self.knots[after - 1], self.knots[after]
        return offset + (next_offset - offset) * (time - begin) // (end - begin)


def align(parts: Iterable[Part], places: Places | None = None) -> dict[Process, Clock]:
    """The clocks of all processes that `parts` tell of.

    Args:
        parts: all workers'.
        places: who was where. Default: each rank was one process's.
    """
    parts = list(parts)
    ends = [_ends(part, places or {}) for part in parts]
    processes = {worker for worker, _ in ends}
    if not processes:
        return {}
    first = min(processes)
    processes |= {server for _, server in ends if server[1] >= 0}
    messages = [
        message
        for part, (worker, server) in zip(parts, ends, strict=True)
        for message in _messages(part, worker, server)
    ]
    rough = _rough(first, messages)
    clocks = dict.fromkeys(sorted(processes), Clock(((0, 0),), None))
    clocks[first] = Clock(((0, 0),), 0)
    of_known = [m for m in messages if m.sender in rough and m.receiver in rough]
    if not of_known:
        return clocks
    origin = min(m.sent - rough[m.sender] for m in of_known)
    shifts = {process: origin + offset for process, offset in rough.items()}
    shifted = [
        m._replace(sent=m.sent - shifts[m.sender], came=m.came - shifts[m.receiver])
        for m in of_known
    ]
    for process, course in _courses(first, shifted).items():
        at = [(time + shifts[process], rough[process] + ahead) for time, ahead in course.knots]
        clocks[process] = Clock(tuple(at), course.error_ns)
    return clocks


def _ends(part: Part, places: Places) -> tuple[Process, Process]:
    """The part's worker and server."""
    return _at("worker", part.worker, part.epoch, places), _at(
        "server", part.server, part.epoch, places
    )


def _at(role: str, rank: int, epoch: int, places: Places) -> Process:
    return places.get((role, rank, epoch), (role, rank))


def _messages(part: Part, worker: Process, server: Process) -> Iterable[_Message]:
    if part.server >= 0 and part.pushed and part.arrival_began:
        yield _Message(worker, part.pushed, server, part.arrival_began)
    if part.server >= 0 and part.answered and part.reply_began:
        yield _Message(server, part.answered, worker, part.reply_began)


def _rough(first: Process, messages: Iterable[_Message]) -> dict[Process, int]:
    """Constant offsets of all processes that both send to known ones and receive from them."""
    took = collections.defaultdict(list)
    for message in messages:
        took[message.sender, message.receiver].append(message.came - message.sent)
    medians = {pair: statistics.median_low(times) for pair, times in took.items()}
    offsets = {first: 0}
    waiting = [first]
    while waiting:
        near = waiting.pop(0)
        for sender, far in medians:
            if sender == near and far not in offsets and (far, near) in medians:
                ahead = (medians[near, far] - medians[far, near]) // 2
                offsets[far] = offsets[near] + int(ahead)
                waiting.append(far)
    return offsets


@dataclasses.dataclass
class _Piece:
    """Some time in which each clock is on a line."""

    begin: int
    end: int
    lines: Mapping[Process, Line]
    messages: Sequence[_Message]


def _courses(first: Process, messages: Sequence[_Message]) -> dict[Process, Clock]:
    """Each process's clock, as `messages` have it."""
    end = max(max(m.sent, m.came) for m in messages) + 1
    processes = {message.sender for message in messages}
    pieces = _pieces(first, processes, messages, (0, end))
    clocks = {process: _on_lines(process, pieces) for process in processes}
    for _ in range(_MOST_PASSES):
        left = [_left(piece.messages, clocks) for piece in pieces]
        clocks = _in_the_middle(first, clocks, left)
        if all(min(_left(piece.messages, clocks).values(), default=0) >= 0 for piece in pieces):
            break  # a second pass is needed only where a piece's lines were far from the next's
    doubts = {p: round(max(piece.lines[p].doubt for piece in pieces)) for p in processes}
    return {
        p: Clock(c.knots, (c.error_ns or 0) + doubts[p] + 1 if p != first else 0)
        for p, c in clocks.items()
    }


def _on_lines(process: Process, pieces: Sequence[_Piece]) -> Clock:
    """A clock that goes along its lines; where two meet, it is between them."""
    knots = []
    for before, after in zip([pieces[0], *pieces], [*pieces, pieces[-1]], strict=True):
        time = before.end if knots else before.begin
        ahead = before.lines[process].at(time) + after.lines[process].at(time)
        knots.append((time, round(ahead / 2)))
    return Clock(tuple(knots), None)


def _in_the_middle(
    first: Process, clocks: Mapping[Process, Clock], left: Sequence[_Bounds]
) -> dict[Process, Clock]:
    """Moves clocks to the middle of what the bounds leave, at each knot; `left`: of each piece."""
    knots = collections.defaultdict(list)
    widths = dict.fromkeys(clocks, 0)
    for number, (time, _) in enumerate(clocks[first].knots):
        bounds: _Bounds = {}
        for of_piece in left[max(0, number - 1) : number + 1]:
            for pair, bound in of_piece.items():
                bounds[pair] = min(bound, bounds.get(pair, bound))
        for process, (low, high) in _limits(first, bounds).items():
            ahead = clocks[process].knots[number][1] + (low + high) // 2
            knots[process].append((time, ahead))
            widths[process] = max(widths[process], (abs(high - low) + 1) // 2)
    return {process: Clock(tuple(knots[process]), widths[process]) for process in clocks}


def _pieces(
    first: Process, processes: Set[Process], messages: Sequence[_Message], span: tuple[int, int]
) -> list[_Piece]:
    """As few as it takes for the bounds to fit: clocks keep their speed until someone sets it."""
    begin, end = span
    lines = _lines(first, messages, span)
    if processes - lines.keys():
        return []
    piece = _Piece(begin, end, lines, messages)
    straight = {
        process: Clock(tuple((time, round(line.at(time))) for time in span), None)
        for process, line in lines.items()
    }
    if end - begin < _LEAST_NS or _distances(first, _left(messages, straight)) is not None:
        return [piece]
    middle = (begin + end) // 2
    early = _pieces(first, processes, [m for m in messages if m.sent < middle], (begin, middle))
    late = _pieces(first, processes, [m for m in messages if m.sent >= middle], (middle, end))
    return early + late if early and late else [piece]


def _lines(
    first: Process, messages: Iterable[_Message], span: tuple[float, float]
) -> dict[Process, Line]:
    """How far each process is ahead, as a line; those of which nothing is known have none."""
    by_process = collections.defaultdict(list)
    for message in messages:
        by_process[message.sender].append(message)
        by_process[message.receiver].append(message)
    lines = {first: Line(0.0, 0.0, 0.0)}
    while True:
        found = {}
        for process in by_process.keys() - lines.keys():
            # No process sends to itself: the other end of each message is another one.
            upper = [
                (m.came, m.came - m.sent + lines[m.sender].at(m.sent))
                for m in by_process[process]
                if m.receiver == process and m.sender in lines
            ]
            lower = [
                (m.sent, m.sent - m.came + lines[m.receiver].at(m.came))
                for m in by_process[process]
                if m.sender == process and m.receiver in lines
            ]
            if upper and lower:
                line = between(upper, lower, span)
                near = {m.sender for m in by_process[process]} & lines.keys()
                doubt = line.doubt + max(lines[each].doubt for each in near)
                found[process] = dataclasses.replace(line, doubt=doubt)
        if not found:
            return lines
        lines |= found


def _left(messages: Iterable[_Message], clocks: Mapping[Process, Clock]) -> _Bounds:
    """What the bounds of each pair say beyond these clocks."""
    bounds: _Bounds = {}
    for sender, sent, receiver, came in messages:
        took = came - clocks[receiver].ahead(came) - (sent - clocks[sender].ahead(sent))
        bounds[sender, receiver] = min(took, bounds.get((sender, receiver), took))
    return bounds


def _limits(first: Process, bounds: _Bounds) -> dict[Process, tuple[int, int]]:
    """Between which offsets each process lies.

    Where a clock was set meanwhile, bounds contradict each other. Then they count as wider.
    """
    wider = 0
    while True:
        widened = {pair: bound + wider for pair, bound in bounds.items()}
        above = _distances(first, widened)
        below = _distances(first, {(b, a): bound for (a, b), bound in widened.items()})
        if above is not None and below is not None:
            return {process: (-below[process], above[process]) for process in above}
        wider = 2 * wider + 1000


def _distances(first: Process, bounds: _Bounds) -> dict[Process, int] | None:
    """The length of the shortest way to each process, where bounds are lengths.

    None if there is no shortest one: going round in a circle makes it shorter.
    """
    lengths = {first: 0}
    for _ in range(1 + len({process for pair in bounds for process in pair})):
        changed = False
        for (begin, end), bound in bounds.items():
            if begin in lengths and lengths[begin] + bound < lengths.get(end, 1 << 80):
                lengths[end] = lengths[begin] + bound
                changed = True
        if not changed:
            return lengths
    return None


_OF_SERVER = ("arrival_began", "arrived", "answered")
_OF_WORKER = (
    *("enqueued", "placed", "computed", "reduced", "copied_out", "pushed"),
    *("reply_began", "reply_received", "copied_in", "broadcast", "done"),
)


def aligned(part: Part, clocks: Mapping[Process, Clock], places: Places | None = None) -> Part:
    """The part by the first worker's clock."""
    worker, server = _ends(part, places or {})
    changed = _shifted(part, _OF_WORKER, clocks.get(worker))
    return dataclasses.replace(part, **changed, **_shifted(part, _OF_SERVER, clocks.get(server)))


def aligned_served(
    served: Served, clocks: Mapping[Process, Clock], places: Places | None = None
) -> Served:
    """The push by the first worker's clock."""
    server = _at("server", served.server, served.epoch, places or {})
    names = (*_OF_SERVER, "summed")
    return dataclasses.replace(served, **_shifted(served, names, clocks.get(server)))


_Span = typing.TypeVar("_Span", InputWait, PythonStep, OuterRound)


def aligned_span(
    span: _Span, clocks: Mapping[Process, Clock], places: Places | None = None
) -> _Span:
    """A wait, a step of Python or an outer round, by the first worker's clock."""
    worker = _at("worker", span.worker, span.epoch, places or {})
    return span._replace(**_shifted(span, ("begin", "end"), clocks.get(worker)))


def _shifted(
    of: Part | Served | InputWait | PythonStep | OuterRound,
    names: Iterable[str],
    clock: Clock | None,
) -> dict[str, int]:
    times = {name: getattr(of, name) for name in names}
    return {n: time - clock.ahead(time) if clock else time for n, time in times.items() if time}
