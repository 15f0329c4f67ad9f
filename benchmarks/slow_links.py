"""What slow links and slow workers cost trainings that do not exchange in each step.

    python -m benchmarks.slow_links

Each worker and each server is an emulated host of its own, at 1 Gbit/s. A step's computing is
emulated by a pause, as two processors cannot compute for five workers: figures are of the
exchanges, and of what they take of the processors.

* Local steps: 20 MB of weights, a step of 50 ms, a round after 32 of them, against computing alone.
* A quorum of three of four workers, of which one takes four times as long for a step: what it costs
  the others.
* Asynchronous training of a character model on two workers, of which one takes three times as long
  for a step, against synchronous training: rows of both in a second, and the loss after as many.
"""

import argparse
import statistics
import sys

from benchmarks import report
from benchmarks.cluster import EmulatedCluster, why_unavailable
from benchmarks.jobs import Job
from benchmarks.measure import Runs
from benchmarks.report import Row
from benchmarks.sessions import BenchmarkError

_PROGRAM = "benchmarks.programs.paced_training"
_STEP = 0.05  # seconds
_MEGABYTES = 20
_LOCAL_STEPS = 32
_OVERLAPPED = {"local_steps": _LOCAL_STEPS, "fragments": 4, "delay": 8}
_LOCAL = {
    "at once": {"local_steps": _LOCAL_STEPS},
    "4 fragments, a delay of 8 steps": _OVERLAPPED,
    "the same, DiLoCo, int8": {**_OVERLAPPED, "outer": "diloco", "compression": "int8"},
}
_ROUNDS = 4  # of a run
_CHARACTER_ROWS = 2 * 128 * 832


def local_steps(gigabits, runs):
    """Rows: steps in a second with local steps, as a share of those without an exchange."""
    with _job(4, 2, gigabits) as job:
        steps = _LOCAL_STEPS * _ROUNDS
        given = {"megabytes": _MEGABYTES, "seconds": _STEP, "slow": 1, "steps": steps}
        found = {case: [] for case in _LOCAL}
        for run in range(runs):
            alone = _longest(job, **given, settings=None, name=f"alone {run} ")
            for number, (case, settings) in enumerate(_LOCAL.items()):
                took = _longest(job, **given, settings=settings, name=f"{number} {run} ")
                found[case].append(100 * alone / took)
        job.workers.call("leave")
    what = f"4 workers, 2 servers, {gigabits:g} Gbit/s, {_MEGABYTES} MB, H = {_LOCAL_STEPS}"
    return [
        Row(
            "steps/s, of computing alone",
            f"{what}: {case}",
            Runs(tuple(values), "%"),
            None if case == "at once" else (">=", 95),
            note=f"a step is a pause of {1000 * _STEP:g} ms",
            goal="" if case == "at once" else "local steps",
        )
        for case, values in found.items()
    ]


def quorum(gigabits, runs):
    """Rows: what a slow worker costs the others."""
    settings = {"local_steps": _LOCAL_STEPS, "quorum": 3}
    with _job(4, 2, gigabits) as job:
        costs, slow_steps = [], []
        for run in range(runs):
            given = {"megabytes": 1, "seconds": _STEP, "steps": _LOCAL_STEPS * 2 * _ROUNDS}
            took = []
            for slow in (1, 4):
                name = f"slow {slow} {run} "
                made = job.workers.call(
                    "paced", timeout=300, slow=slow, settings=settings, name=name, **given
                )
                took.append(max(seconds for seconds, _ in made[:-1]))
            slow_steps.append(made[-1][1])
            costs.append(100 * (took[1] / took[0] - 1))
        job.workers.call("leave")
    note = (
        f"of {given['steps']} steps of the others it made {statistics.median(slow_steps):g}; "
        f"a step is a pause of {1000 * _STEP:g} ms"
    )
    case = "4 workers, a quorum of 3, one takes 4 times as long for a step"
    return [
        Row(
            "time that it costs the others",
            case,
            Runs(tuple(costs), "%"),
            ("<=", 5),
            note,
            goal="quorum",
        )
    ]


def asynchronous(gigabits, runs):
    """Rows: throughput and loss of asynchronous training against synchronous."""
    with _job(2, 2, gigabits) as job:
        faster, above = [], []
        for seed in range(runs):
            rates, losses = [], []
            for is_asynchronous in (False, True):
                found = job.workers.call(
                    "trains",
                    timeout=400,
                    asynchronous=is_asynchronous,
                    seed=seed,
                    seconds=_STEP / 2,
                    slow=3,
                    rows=_CHARACTER_ROWS,
                )
                seconds = max(took for took, *_ in found)
                rates.append(sum(rows for _, rows, _ in found) / seconds)
                losses.append(found[0][2])
            faster.append(rates[1] / rates[0])
            above.append(100 * (losses[1] / losses[0] - 1))
        job.workers.call("leave")
    case = "2 workers, one takes 3 times as long for a step"
    note = (
        f"a step is computed, and a pause of {500 * _STEP:g} ms (the slow one's: of 3 times that)"
    )
    rows = (
        ("asynchronous, rows/s of synchronous", Runs(tuple(faster), "x"), (">=", 1.6)),
        ("asynchronous, loss above synchronous", Runs(tuple(above), "%"), ("<=", 2)),
    )
    return [
        Row(figure, case, values, target, note, goal="asynchronous")
        for figure, values, target in rows
    ]


def run(runs, gigabits=1.0, only=("local", "quorum", "asynchronous")):
    """Rows of some of the three."""
    reason = why_unavailable()
    if reason:
        return [
            Row("slow links and workers", "", None, (">=", 1), reason, goal=goal)
            for goal in ("local steps", "quorum", "asynchronous")
        ]
    return [row for name in only for row in _MEASURED[name](gigabits, runs)]


_MEASURED = {"local": local_steps, "quorum": quorum, "asynchronous": asynchronous}


def _job(workers, servers, gigabits):
    return _Emulated(workers, servers, gigabits)


class _Emulated:
    """A job whose workers have joined, on emulated hosts."""

    def __init__(self, workers, servers, gigabits):
        self._cluster = EmulatedCluster(workers + servers, gigabits)
        self._given = (_PROGRAM, workers, servers)

    def __enter__(self):
        self._cluster.__enter__()
        try:
            self._job = Job(*self._given, cluster=self._cluster).__enter__()
            self._job.workers.call("join", timeout=120)
        except BaseException:
            self._cluster.__exit__()
            raise
        return self._job

    def __exit__(self, *details):
        try:
            self._job.__exit__(*details)
        finally:
            self._cluster.__exit__(*details)


def _longest(job, **arguments):
    return max(seconds for seconds, _ in job.workers.call("paced", timeout=300, **arguments))


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slow_links", description=__doc__)
    parser.add_argument("--gigabits", type=float, default=1.0, help="rate of each NIC, each way")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=_MEASURED, default=list(_MEASURED))
    given = parser.parse_args(arguments)
    reason = why_unavailable()
    if reason:
        raise SystemExit(f"error: {reason}")
    try:
        rows = run(given.runs, given.gigabits, given.only)
    except BenchmarkError as error:
        raise SystemExit(f"error: {error}") from None
    return 0 if report.publish("slow_links", "Slow links and workers", rows) else 1


if __name__ == "__main__":
    sys.exit(main())
