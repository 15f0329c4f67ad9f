"""The line between two sets of points: where one clock is, seen from another.

What a process received says how far its clock is ahead at most, what it sent says how far at least.
A clock that runs faster than another moves away along a line, so that the line lies below all of
the first points and above all of the second.
"""

import dataclasses
from collections.abc import Callable, Sequence

Point = tuple[float, float]

# Quartz is wrong by less than 100 ppm; two clocks, of which one is being set, by no more than this.
MOST_DRIFT = 300e-6
_ROUNDS = 60


@dataclasses.dataclass(frozen=True)
class Line:
    """A line, and how wrong it may be.

    Attributes:
        base: its value at 0.
        slope: how much it rises.
        doubt: how far another line between the same points is away at most, beyond half of the
            distance of the points.
    """

    base: float
    slope: float
    doubt: float

    def at(self, time: float) -> float:
        """Its value."""
        return self.base + self.slope * time


def between(upper: Sequence[Point], lower: Sequence[Point], span: tuple[float, float]) -> Line:
    """The line that lies in the middle between points.

    Its slope leaves it most room. If a line that rises less has half as much, it is that one: a few
    points always leave most room to some slope that means nothing.

    Args:
        upper: points that it lies below. At least one.
        lower: points that it lies above. At least one.
        span: where it is wanted.

    Example:

    >>> between([(0, 10), (50, 15), (100, 110)], [(0, -10), (100, -5)], (0, 100)).at(0)
    0.0
    """
    above = _hull(upper)
    below = [(x, -y) for x, y in _hull([(x, -y) for x, y in lower])]

    def limits(slope: float, at: float = 0.0) -> Point:
        high = min(y - slope * (x - at) for x, y in above)
        return max(y - slope * (x - at) for x, y in below), high

    def room(slope: float) -> float:
        low, high = limits(slope)
        return high - low

    best = _highest(room, -MOST_DRIFT, MOST_DRIFT)
    slope = _toward(room, best, 0.0, room(best) / 2)
    low, high = limits(slope)
    line = Line((low + high) / 2, slope, 0.0)
    steepest = [_toward(room, best, end, 0.0) for end in (-MOST_DRIFT, MOST_DRIFT)]
    doubt = 0.0
    for time in span:
        most = limits(_highest(lambda s, time=time: limits(s, time)[1], *steepest), time)[1]
        least = limits(_highest(lambda s, time=time: -limits(s, time)[0], *steepest), time)[0]
        doubt = max(doubt, most - line.at(time), line.at(time) - least)
    return dataclasses.replace(line, doubt=max(0.0, doubt - (high - low) / 2))


def _hull(points: Sequence[Point]) -> list[Point]:
    """Those that a line from below can touch."""
    hull: list[Point] = []
    for x, y in sorted(points):
        while len(hull) > 1:
            (x1, y1), (x2, y2) = hull[-2:]
            if (y2 - y1) * (x - x2) < (y - y2) * (x2 - x1):
                break
            hull.pop()
        if not hull or hull[-1][0] < x:
            hull.append((x, y))
    return hull


def _highest(value: Callable[[float], float], low: float, high: float) -> float:
    """Where a concave function is highest."""
    for _ in range(_ROUNDS):
        third = (high - low) / 3
        if value(low + third) < value(high - third):
            low += third
        else:
            high -= third
    return (low + high) / 2


def _toward(value: Callable[[float], float], begin: float, end: float, least: float) -> float:
    """How far one comes from `begin` to `end` while a concave function has `least` or more."""
    if value(end) >= least or value(begin) < least:
        return end if value(end) >= least else begin
    for _ in range(_ROUNDS):
        middle = (begin + end) / 2
        if value(middle) >= least:
            begin = middle
        else:
            end = middle
    return begin
