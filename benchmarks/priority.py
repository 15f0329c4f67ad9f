"""A small urgent tensor behind large ones that are not, in an emulated cluster.

A tensor of 64 KB and highest priority is handed to the engine behind 16 of 4 MB and lowest. It has
to overtake those that the credit has not yet admitted. Two cases: the workers' sending is slow, so
that pushes queue up in the worker; or their receiving is, so that replies do in the server. With
priorities off it has to wait for all of them.

    python -m benchmarks.priority
"""

import argparse
import sys

from benchmarks import report
from benchmarks.cluster import EmulatedCluster, why_unavailable
from benchmarks.jobs import Job, settings_of
from benchmarks.measure import Runs
from benchmarks.models import uniform
from benchmarks.report import Row
from benchmarks.sessions import BenchmarkError
from benchmarks.wire import measure_wire

_FAST = 1.0  # Gbit/s of what is not to be the limit
_LARGE = (16, 1_000_000)  # tensors and elements: 4 MB each
_SMALL = (1, 16_384)
# Until many replies wait in the server.
_PAUSES = {"push": 0.0, "reply": 1.5}
_GOAL = "priority"


def measure(direction, priorities, rounds, megabits=100, workers=2, settings=None, advance=None):
    """Measures one case.

    Returns:
        A dict: seconds (`Runs`, of the slower worker each), everything (seconds until all was
        done), limit (what they may be), wire, part and credit (bytes).
    """
    slow = megabits / 1000
    limited = {"push": (slow, _FAST), "reply": (_FAST, slow)}[direction]
    with EmulatedCluster(workers + 1, [limited] * workers + [(_FAST, _FAST)]) as cluster:
        ends = (0, workers) if direction == "push" else (workers, 0)
        wire = measure_wire(cluster, *ends)
        job = Job("benchmarks.programs.engine", workers, 1, False, cluster, settings)
        with job:
            job.workers.call("join")
            # In forward order: the first one is the most urgent.
            tensors = uniform(*_SMALL).tensors + uniform(*_LARGE).tensors
            names = [[f"{n}", shape] for n, (_, shape) in enumerate(tensors)]
            order = "forward" if priorities else "none"
            job.workers.call("prepare", group="all", tensors=names, priorities=order)
            shapes = [shape for _, shape in names]
            part, credit = job.workers.call("flow_limits", shapes=shapes, servers=1)[0]
            job.workers.call("split", group="all", first="small", rest="large")
            seconds, everything = [], []
            for _ in range(rounds):
                pause = _PAUSES[direction]
                spans = job.workers.call("overtake", large="large", small="small", pause=pause)
                seconds.append(max(done for done, _ in spans))
                everything.append(max(end for _, end in spans))
                if advance:
                    advance()
    return {
        "seconds": Runs(tuple(seconds), "s"),
        "everything": Runs(tuple(everything), "s"),
        "limit": (credit + part) / wire.bytes_per_second + 2 * wire.round_trip,
        "wire": wire,
        "part": part,
        "credit": credit,
    }


def row_of(direction, priorities, rounds, **arguments):
    measured = measure(direction, priorities, rounds, **arguments)
    way = {"push": "workers send at 100 Mbit/s", "reply": "workers receive at 100 Mbit/s"}
    note = (
        f"everything is done after {measured['everything'].median:.2f} s; credit "
        f"{measured['credit'] / 1e6:.2f} MB, part {measured['part'] / 1e6:.2f} MB"
    )
    if priorities:
        target, case = ("<=", measured["limit"]), way[direction]
    else:
        # The comparison must be able to fail: without priorities it has to.
        target, case = (">=", measured["limit"]), f"{way[direction]}, priorities off"
        note += "; must be longer than the limit"
    return Row("64 KB behind 16 × 4 MB", case, measured["seconds"], target, note, goal=_GOAL)


def run(rounds, **arguments):
    """All cases; rows."""
    reason = why_unavailable()
    if reason:
        return [Row("64 KB behind 16 × 4 MB", "", None, ("<=", 0.0), reason, goal=_GOAL)]
    cases = [(way, on) for way in ("push", "reply") for on in (True, False)]
    with report.progress() as bar:
        task = bar.add_task("priority", total=len(cases) * rounds)
        return [
            row_of(way, on, rounds, advance=lambda: bar.advance(task), **arguments)
            for way, on in cases
        ]


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.priority", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="VARIABLE=VALUE", help="settings of all processes"
    )
    given = parser.parse_args(arguments)
    settings = settings_of(given.set)
    try:
        rows = run(given.rounds, settings=settings)
    except BenchmarkError as error:
        raise SystemExit(f"error: {error}") from None
    return 0 if report.publish("priority", "Priority", rows) else 1


if __name__ == "__main__":
    sys.exit(main())
