"""One tensor of 64 MB over an emulated network, as it is and compressed.

    python -m benchmarks.compression --workers 4 --gigabits 1

There are as many server hosts as workers. All exchange in one job and take turns.
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
_CODECS = ("", "int8")
_FIGURE = "push_pull, compressed"
_WARMUPS = 6  # parts and credit follow the links by then
_GOAL = "compression"
_TARGET = ("<=", 170)  # ms: with int8 8.5 bits of 32 take 155 ms of the wire


def _name(codec):
    return codec or "none"


def measure(workers, gigabits, rounds):
    """Runs of each codec, by name, in milliseconds, and the share of the CPUs that was busy."""
    with EmulatedCluster(2 * workers, gigabits) as cluster:
        with Job("benchmarks.programs.engine", workers, workers, True, cluster) as job:
            job.workers.call("join")
            tensors = [["tensor", [_BYTES // FLOAT_BYTES]]]
            for codec in _CODECS:
                job.workers.call("prepare", group=_name(codec), tensors=tensors, codec=codec)

            def exchange(codec):
                return 1000 * duration(job.workers.call("exchange", group=_name(codec)))

            turns = {_name(codec): lambda codec=codec: exchange(codec) for codec in _CODECS}
            for _ in range(_WARMUPS):
                for turn in turns.values():
                    turn()
            meter = CpuMeter(job.pids)
            with report.progress() as bar:
                task = bar.add_task(_FIGURE, total=rounds * len(turns))
                times = interleaved(rounds, "ms", turns, lambda: bar.advance(task))
            busy, _ = meter.shares()
            for codec in _CODECS:
                job.workers.call("check", group=_name(codec))
    return times, busy


def run(rounds, workers=4, gigabits=1.0):
    """Rows of all codecs."""
    case = f"64 MB, {workers} workers, {workers} servers, {gigabits:g} Gbit/s"
    is_goal = (workers, gigabits) == (4, 1)
    goal = {"target": _TARGET, "goal": _GOAL} if is_goal else {}
    reason = why_unavailable()
    if reason:
        return [Row(_FIGURE, f"{case}: int8", None, note=reason, **goal)]
    times, busy = measure(workers, gigabits, rounds)
    note = f"all: CPUs {busy:.0%} busy"
    return [
        Row(_FIGURE, f"{case}: {name}", runs, note=note, **(goal if name == "int8" else {}))
        for name, runs in times.items()
    ]


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compression", description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--gigabits", type=float, default=1.0, help="rate of each NIC, each way")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args(arguments)
    try:
        rows = run(given.rounds, given.workers, given.gigabits)
    except BenchmarkError as error:
        raise SystemExit(f"error: {error}") from None
    return 0 if report.publish("compression", "Compression in an emulated cluster", rows) else 1


if __name__ == "__main__":
    sys.exit(main())
