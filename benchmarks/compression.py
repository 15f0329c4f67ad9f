"""One tensor of 64 MB over an emulated network, as it is and compressed.

    python -m benchmarks.compression --workers 4 --gigabits 1
    python -m benchmarks.compression --workers 2 --gigabits 0.1 1 10 0 --codecs none int8 auto

There are as many server hosts as workers, or each worker's process has a server (`--colocated`).
All exchange in one job and take turns.
"""

import argparse
import sys

from benchmarks import report
from benchmarks.cluster import EmulatedCluster, shown_rate, why_unavailable
from benchmarks.jobs import Job
from benchmarks.loopback import duration
from benchmarks.measure import CpuMeter, Runs, interleaved
from benchmarks.models import FLOAT_BYTES
from benchmarks.report import Row
from benchmarks.sessions import BenchmarkError

_BYTES = 64 * 2**20
_NARROW = "none, values of 16 bits"  # fit in 16 bits as they are, as in mixed precision
_CASES = ("none", _NARROW, "int8")
_FIGURE = "push_pull, compressed"
_WARMUPS = 6  # parts, credit and what is automatic follow the links by then
_GOAL = "compression"
_TARGET = ("<=", 170)  # ms: with int8 8.5 bits of 32 take 155 ms of the wire
_AUTO_TARGET = ("<=", 1.02)  # times the better of none and int8


def measure(workers, gigabits, rounds, colocated=False, cases=_CASES):
    """Runs of each case, by name, in milliseconds, and the share of the CPUs that was busy."""
    servers = 0 if colocated else workers
    with EmulatedCluster(workers + servers, gigabits) as cluster:
        with Job("benchmarks.programs.engine", workers, servers, True, cluster) as job:
            job.workers.call("join")
            tensors = [["tensor", [_BYTES // FLOAT_BYTES]]]
            for name in cases:
                codec = "" if name.startswith("none") else name
                job.workers.call(
                    "prepare", group=name, tensors=tensors, codec=codec, is_narrow=name == _NARROW
                )

            def exchange(name):
                return 1000 * duration(job.workers.call("exchange", group=name))

            turns = {name: lambda name=name: exchange(name) for name in cases}
            for _ in range(_WARMUPS):
                for turn in turns.values():
                    turn()
            meter = CpuMeter(job.pids)
            with report.progress() as bar:
                task = bar.add_task(_FIGURE, total=rounds * len(turns))
                times = interleaved(rounds, "ms", turns, lambda: bar.advance(task))
            busy, _ = meter.shares()
            for name in cases:
                job.workers.call("check", group=name)
    return times, busy


def run(rounds, workers=4, gigabits=1.0, colocated=False, cases=_CASES):
    """Rows of all cases."""
    servers = "a server in each" if colocated else f"{workers} servers"
    case = f"64 MB, {workers} workers, {servers}, {shown_rate(gigabits or None)}"
    is_goal = (workers, gigabits, colocated) == (4, 1, False)
    goal = {"target": _TARGET, "goal": _GOAL} if is_goal else {}
    reason = why_unavailable()
    if reason:
        return [Row(_FIGURE, f"{case}: int8", None, note=reason, **goal)]
    times, busy = measure(workers, gigabits or None, rounds, colocated, cases)
    note = f"all: CPUs {busy:.0%} busy"
    rows = [
        Row(_FIGURE, f"{case}: {name}", runs, note=note, **(goal if name == "int8" else {}))
        for name, runs in times.items()
    ]
    if {"none", "int8", "auto"} <= set(cases):
        rows.append(_auto_row(case, times))
    return rows


def _auto_row(case, times):
    """Of each round, against the one of both that has the lower median."""
    better = min("none", "int8", key=lambda name: times[name].median)
    pairs = zip(times["auto"].values, times[better].values, strict=True)
    ratios = Runs(tuple(automatic / other for automatic, other in pairs), "×")
    return Row("auto against the better of both", case, ratios, _AUTO_TARGET, f"that is {better}")


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compression", description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument(
        "--gigabits",
        type=float,
        nargs="+",
        default=[1.0],
        help="rates of each NIC, each way; 0: any",
    )
    parser.add_argument("--colocated", action="store_true", help="servers in workers' processes")
    parser.add_argument("--codecs", nargs="+", default=_CASES)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args(arguments)
    rows, details = [], []
    try:
        for gigabits in given.gigabits:
            of_rate = run(given.rounds, given.workers, gigabits, given.colocated, given.codecs)
            rows += of_rate
            for codec, row in zip(given.codecs, of_rate, strict=False):
                details.append({"gigabits": gigabits, "codec": codec, "row": row.as_json()})
    except BenchmarkError as error:
        raise SystemExit(f"error: {error}") from None
    title = "Compression in an emulated cluster"
    return 0 if report.publish("compression", title, rows, {"cases": details}) else 1


if __name__ == "__main__":
    sys.exit(main())
