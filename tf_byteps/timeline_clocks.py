"""How far the clocks of a job's processes are apart, as its exchanges tell.

No push arrives before it was sent, and no reply either: each is a bound for the difference of two
clocks, the closer the less it took. The closest bounds of all pairs together say between which
limits a clock lies; its offset is their middle, half of their distance the error. As all bounds
hold in the middle as well, no push arrives before it was sent by the clocks so aligned.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from tf_byteps.timeline import Part
from tf_byteps.timeline_server import Served

Process = tuple[str, int]  # "worker" or "server", and its rank
_Bounds = dict[tuple[Process, Process], int]


@dataclasses.dataclass(frozen=True)
class Clock:
    """A process's clock.

    Attributes:
        offset_ns: how much it is ahead of the first worker's.
        error_ns: how wrong that may be; None: nothing is known.
    """

    offset_ns: int
    error_ns: int | None


def align(parts: Iterable[Part]) -> dict[Process, Clock]:
    """The clocks of all processes that `parts` tell of."""
    bounds: _Bounds = {}
    processes: set[Process] = set()
    for part in parts:
        worker, server = ("worker", part.worker), ("server", part.server)
        processes.add(worker)
        if part.server < 0:
            continue
        processes.add(server)
        for pair, sent, came in (
            ((worker, server), part.pushed, part.arrival_began),
            ((server, worker), part.answered, part.reply_began),
        ):
            if sent and came:
                bounds[pair] = min(came - sent, bounds.get(pair, came - sent))
    if not processes:
        return {}
    first = min(processes, key=lambda process: (process[0] != "worker", process[1]))
    above = _distances(first, bounds)
    below = _distances(first, {(b, a): bound for (a, b), bound in bounds.items()})
    clocks = {}
    for process in sorted(processes):
        if process in above and process in below:
            low, high = -below[process], above[process]
            # Where a clock was set meanwhile, or drifts, bounds contradict each other.
            clocks[process] = Clock((low + high) // 2, (abs(high - low) + 1) // 2)
        else:
            clocks[process] = Clock(0, None)
    return clocks


def _distances(first: Process, bounds: _Bounds) -> dict[Process, int]:
    """The length of the shortest way to each process, where bounds are lengths."""
    lengths = {first: 0}
    for _ in range(len({process for pair in bounds for process in pair})):
        changed = False
        for (begin, end), bound in bounds.items():
            if begin in lengths and lengths[begin] + bound < lengths.get(end, 1 << 80):
                lengths[end] = lengths[begin] + bound
                changed = True
        if not changed:
            break
    lengths[first] = 0
    return lengths


_OF_SERVER = ("arrival_began", "arrived", "answered")
_OF_WORKER = (
    *("enqueued", "placed", "computed", "reduced", "copied_out", "pushed"),
    *("reply_began", "reply_received", "copied_in", "broadcast", "done"),
)


def aligned(part: Part, clocks: Mapping[Process, Clock]) -> Part:
    """The part by the first worker's clock."""
    changed = _shifted(part, _OF_WORKER, clocks.get(("worker", part.worker)))
    return dataclasses.replace(
        part, **changed, **_shifted(part, _OF_SERVER, clocks.get(("server", part.server)))
    )


def aligned_served(served: Served, clocks: Mapping[Process, Clock]) -> Served:
    """The push by the first worker's clock."""
    names = (*_OF_SERVER, "summed")
    return dataclasses.replace(
        served, **_shifted(served, names, clocks.get(("server", served.server)))
    )


def _shifted(of: Part | Served, names: Iterable[str], clock: Clock | None) -> dict[str, int]:
    offset = clock.offset_ns if clock else 0
    return {name: getattr(of, name) - offset for name in names if getattr(of, name)}
