"""One tensor of 64 MB over an emulated network, as it is and compressed.

    python -m benchmarks.compression --workers 4 --gigabits 1

There are as many server hosts as workers, or each worker's process has a server (`--colocated`).
All exchange in one job and take turns.
"""

import argparse
import sys

from benchmarks import report
from benchmarks.cluster import EmulatedCluster, why_unavailable
from benchmarks.jobs import Job
from benchmarks.loopback import duration
from benchmarks.measure import CpuMeter, interleaved
from benchmarks.models import FLOAT_BYTES
from benchmarks.report import Row
from benchmarks.sessions import BenchmarkError

_BYTES = 64 * 2**20
# Codec, and whether the values fit in 16 bits as they are, as in mixed precision.
_CASES = {"none": ("", False), "none, values of 16 bits": ("", True), "int8": ("int8", False)}
_FIGURE = "push_pull, compressed"
_WARMUPS = 6  # parts and credit follow the links by then
_GOAL = "compression"
_TARGET = ("<=", 170)  # ms: with int8 8.5 bits of 32 take 155 ms of the wire


def measure(workers, gigabits, rounds, colocated=False):
    """Runs of each case, by name, in milliseconds, and the share of the CPUs that was busy."""
    servers = 0 if colocated else workers
    with EmulatedCluster(workers + servers, gigabits) as cluster:
        with Job("benchmarks.programs.engine", workers, servers, True, cluster) as job:
            job.workers.call("join")
            tensors = [["tensor", [_BYTES // FLOAT_BYTES]]]
            for name, (codec, is_narrow) in _CASES.items():
                job.workers.call(
                    "prepare", group=name, tensors=tensors, codec=codec, is_narrow=is_narrow
                )

            def exchange(name):
                return 1000 * duration(job.workers.call("exchange", group=name))

            turns = {name: lambda name=name: exchange(name) for name in _CASES}
            for _ in range(_WARMUPS):
                for turn in turns.values():
                    turn()
            meter = CpuMeter(job.pids)
            with report.progress() as bar:
                task = bar.add_task(_FIGURE, total=rounds * len(turns))
                times = interleaved(rounds, "ms", turns, lambda: bar.advance(task))
            busy, _ = meter.shares()
            for name in _CASES:
                job.workers.call("check", group=name)
    return times, busy


def run(rounds, workers=4, gigabits=1.0, colocated=False):
    """Rows of all cases."""
    servers = "a server in each" if colocated else f"{workers} servers"
    case = f"64 MB, {workers} workers, {servers}, {gigabits:g} Gbit/s"
    is_goal = (workers, gigabits, colocated) == (4, 1, False)
    goal = {"target": _TARGET, "goal": _GOAL} if is_goal else {}
    reason = why_unavailable()
    if reason:
        return [Row(_FIGURE, f"{case}: int8", None, note=reason, **goal)]
    times, busy = measure(workers, gigabits, rounds, colocated)
    note = f"all: CPUs {busy:.0%} busy"
    return [
        Row(_FIGURE, f"{case}: {name}", runs, note=note, **(goal if name == "int8" else {}))
        for name, runs in times.items()
    ]


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compression", description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--gigabits", type=float, default=1.0, help="rate of each NIC, each way")
    parser.add_argument("--colocated", action="store_true", help="servers in workers' processes")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args(arguments)
    try:
        rows = run(given.rounds, given.workers, given.gigabits, given.colocated)
    except BenchmarkError as error:
        raise SystemExit(f"error: {error}") from None
    return 0 if report.publish("compression", "Compression in an emulated cluster", rows) else 1


if __name__ == "__main__":
    sys.exit(main())
