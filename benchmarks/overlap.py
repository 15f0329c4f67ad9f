"""Training steps whose gradients travel while others are computed, in an emulated cluster.

Two workers and two server hosts train a perceptron of many equal layers. The batch is chosen so
that computing takes a half, one, and two times t_opt. The rate is low, so that moving the bytes
leaves the two cores to TensorFlow: half of it where both are needed all the time.

    python -m benchmarks.overlap --compute 1
"""

import argparse
import shutil
import sys

from benchmarks import report
from benchmarks.cluster import EmulatedCluster, why_unavailable
from benchmarks.jobs import Job
from benchmarks.measure import Runs, interleaved, shown
from benchmarks.models import FLOAT_BYTES, optimal_seconds
from benchmarks.report import Row
from benchmarks.sessions import BenchmarkError
from benchmarks.steps import step_seconds
from benchmarks.wire import measure_wire

_PROGRAM = "benchmarks.programs.mlp_tensorflow"
_WIDTH, _LAYERS = 320, 32  # 13 MB
_WORKERS, _SERVERS = 2, 2
_STEPS = 2  # in each run
_FIT_STEPS = (2, 6)
_GIGABITS = (0.125, 0.0625)  # the second one for as much computing as exchanging
_LIMIT = 1.1
_FIRST_BATCH = 64
_GOAL = "overlap"
_FIGURES = {"plain": "step with overlap", "cross_step": "step with overlap, cross_step"}
TIMELINE = report.FOLDER / "timeline"


def _build(workers, batch):
    arguments = {"width": _WIDTH, "layers": _LAYERS, "batch": batch}
    workers.call_each("build", [{**arguments, "rank": rank} for rank in range(_WORKERS)])


def _seconds(workers, kind, count=_STEPS):
    return step_seconds(workers.call("steps", kind=kind, count=count, timeout=200))


def _fit_batch(workers, seconds):
    """Builds the model with a batch for which computing takes about `seconds`."""
    batch = _FIRST_BATCH
    for _ in range(3):
        _build(workers, batch)
        _seconds(workers, "local", 1)
        taken = _seconds(workers, "local", 3)
        if abs(taken / seconds - 1) < 0.1:
            break
        batch = max(1, round(batch * seconds / taken))
    return batch


def _cross_step(workers, batch):
    """A function that measures a step of `Model.fit` across steps."""
    arguments = {"width": _WIDTH, "layers": _LAYERS, "batch": batch, "cross_step": True}
    workers.call("build_fit", **arguments)
    workers.call("fit", count=_FIT_STEPS[0], timeout=200)

    def measure():
        short, long = (max(workers.call("fit", count=n, timeout=200)) for n in _FIT_STEPS)
        return (long - short) / (_FIT_STEPS[1] - _FIT_STEPS[0])

    return measure


def _rows_of(workers, compute, best, rounds, bar, gigabits):
    """The rows for one ratio of computing to t_opt."""
    batch = _fit_batch(workers, compute * best)
    run = {
        "compute": lambda: _seconds(workers, "local"),
        "first": lambda: _seconds(workers, "first gradient"),
        "plain": lambda: _seconds(workers, "plain"),
    }
    if all(workers.call("has_cross_step")):
        run["cross_step"] = _cross_step(workers, batch)
    for function in run.values():
        function()
    task = bar.add_task(f"compute = {compute:g} t_opt", total=rounds * len(run))
    times = interleaved(rounds, "s", run, lambda: bar.advance(task))
    bar.remove_task(task)
    bounds = {
        "plain": [
            max(whole, first + best)
            for whole, first in zip(times["compute"].values, times["first"].values)
        ],
        "cross_step": [max(whole, best) for whole in times["compute"].values],
    }
    case = f"{_WORKERS} workers, {_SERVERS} servers, compute = {compute:g} t_opt"
    note = (
        f"compute {shown(times['compute'].median)} s, t_first {shown(times['first'].median)} s, "
        f"t_opt {shown(best)} s, batch {batch}, {gigabits:g} Gbit/s"
    )
    rows = []
    for mode, figure in _FIGURES.items():
        target = ("<=", _LIMIT)
        if mode not in times:
            why = "BytePSStrategy has no argument cross_step"
            rows.append(Row(figure, case, None, target, why, goal=_GOAL))
            continue
        values = tuple(t / bound for t, bound in zip(times[mode].values, bounds[mode]))
        own = f"step {shown(times[mode].median)} s, {note}"
        rows.append(Row(figure, case, Runs(values, "of the bound"), target, own, goal=_GOAL))
    return rows


def run(ratios, rounds, gigabits=None, settings=None):
    """Rows for all ratios of computing to t_opt; the last one's step is recorded.

    Args:
        gigabits: the rate of each NIC, in Gbit/s; `None`: what suits each ratio.
    """
    reason = why_unavailable()
    if reason:
        target = ("<=", _LIMIT)
        return [Row(figure, "", None, target, reason, goal=_GOAL) for figure in _FIGURES.values()]
    by_rate = {}
    for ratio in ratios:
        by_rate.setdefault(gigabits or _GIGABITS[ratio == 1], []).append(ratio)
    rows = []
    for rate, its_ratios in by_rate.items():
        rows += _rows_at(rate, its_ratios, rounds, settings)
    return rows


def _rows_at(gigabits, ratios, rounds, settings):
    rows = []
    with EmulatedCluster(_WORKERS + _SERVERS, gigabits) as cluster:
        wire = measure_wire(cluster)
        model_bytes = FLOAT_BYTES * _LAYERS * (_WIDTH + 1) * _WIDTH
        best = optimal_seconds(_WORKERS, _SERVERS, model_bytes, wire.bytes_per_second)
        with Job(_PROGRAM, _WORKERS, _SERVERS, True, cluster, settings) as job:
            job.workers.call("join", strategy="byteps")
            with report.progress() as bar:
                for compute in ratios:
                    rows += _rows_of(job.workers, compute, best, rounds, bar, gigabits)
            _record(job.workers)
    return rows


def _record(workers):
    shutil.rmtree(TIMELINE, ignore_errors=True)
    TIMELINE.mkdir(parents=True)
    workers.call("record", kind="plain", path=f"{TIMELINE}/", timeout=200)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overlap", description=__doc__)
    parser.add_argument(
        "--compute", type=float, nargs="+", default=[0.5, 2, 1], help="in units of t_opt"
    )
    parser.add_argument("--gigabits", type=float, help="of each NIC")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(arguments)
    try:
        rows = run(given.compute, given.rounds, given.gigabits)
    except BenchmarkError as error:
        raise SystemExit(f"error: {error}") from None
    return 0 if report.publish("overlap", "Steps with overlap", rows) else 1


if __name__ == "__main__":
    sys.exit(main())
