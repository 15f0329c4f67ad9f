"""What local steps cost and save: a small character model on workers behind slow links.

    python -m benchmarks.local_steps --gigabits 0.1 --seeds 3
    python -m benchmarks.local_steps --gigabits 0.01 0.1 1

Each worker and each server is an emulated host of its own. Draws loss over bytes, and over time at
each rate, as build/bench/local_steps.svg, or where `--plot` says. At 10 Mbit/s a synchronous
training takes five minutes. At 1 Gbit/s computing is what takes the time, so that it is of use only
on a machine on which nothing else runs.
"""

import argparse
import math
import statistics
import sys

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot, ticker  # noqa: E402

from benchmarks import report  # noqa: E402
from benchmarks.cluster import EmulatedCluster  # noqa: E402
from benchmarks.jobs import Job  # noqa: E402
from benchmarks.measure import Runs  # noqa: E402
from benchmarks.report import Row  # noqa: E402
from benchmarks.sessions import ROOT, BenchmarkError  # noqa: E402

_SYNCHRONOUS = "synchronous"
# What is trained with: mode, compression, and whether workers have files of their own.
_CASES = {
    _SYNCHRONOUS: ("synchronous", "none", False),
    "average": ("average", "none", False),
    "diloco": ("diloco", "none", False),
    "diloco, int4": ("diloco", "int4", False),
    "average, by file": ("average", "none", True),
    "diloco, by file": ("diloco", "none", True),
}
_SETTINGS = {"BYTEPS_MIN_COMPRESS_BYTES": "4096"}


def measure(workers, servers, gigabits, seeds, steps, local_steps, cases=tuple(_CASES)):
    """Curves: a list, by seed, of the points of each case, see `train_by`."""
    curves = {case: [] for case in cases}
    program = "benchmarks.programs.character_training"
    with (
        EmulatedCluster(workers + servers, gigabits) as cluster,
        Job(program, workers, servers, cluster=cluster, settings=_SETTINGS) as job,
    ):
        job.workers.call("join", timeout=120)
        with report.progress() as bar:
            task = bar.add_task("trainings", total=seeds * len(curves))
            for seed in range(seeds):
                for case, of_seeds in curves.items():
                    mode, compression, by_file = _CASES[case]
                    of_workers = job.workers.call(
                        "train_by",
                        timeout=1800,
                        mode=mode,
                        compression=compression,
                        seed=seed,
                        steps=steps,
                        local_steps=local_steps,
                        by_file=by_file,
                    )
                    of_seeds.append(of_workers[0])
                    bar.advance(task)
        job.workers.call("leave")
    return curves


def rows_of(curves, what):
    """Rows against the synchronous training of the same seed; of its own loss, bytes and time."""
    rows = []
    plain = [curve[-1] for curve in curves[_SYNCHRONOUS]]
    for case, of_seeds in curves.items():
        last = [curve[-1] for curve in of_seeds]
        note = (
            f"{_mean(last, 3):.4f} nats, {_mean(last, 2) / 1e6:.2f} MB pushed per worker, "
            f"{_mean(last, 1):.1f} s"
        )
        if case == _SYNCHRONOUS:
            losses = Runs(tuple(loss for *_, loss in last), "nats")
            rows.append(Row("validation loss", f"{what}: {case}", losses, note=note))
            continue
        most = None if "by file" in case else 1.5 if "int4" in case else 1
        above = tuple(100 * (a[3] / b[3] - 1) for a, b in zip(last, plain, strict=True))
        target = most and ("<=", most)
        name = "loss above synchronous"
        rows.append(Row(name, f"{what}: {case}", Runs(above, "%"), target, note=note))
        for name, index, least in (("times fewer bytes", 2, 50), ("times shorter", 1, 10)):
            ratios = tuple(b[index] / a[index] for a, b in zip(last, plain, strict=True))
            rows.append(Row(name, f"{what}: {case}", Runs(ratios, "x"), (">=", least)))
    return rows


def _shown(gigabits):
    return f"{1000 * gigabits:g} Mbit/s"


def _mean(points, index):
    return statistics.mean(point[index] for point in points)


def draw(curves_by_rate, path):
    """Loss over bytes and over time: means of the seeds, a line for each case.

    Args:
        curves_by_rate: of each rate in Gbit/s what `measure` returned. Bytes are of the first.
        path: of the picture.
    """
    rows = math.ceil((1 + len(curves_by_rate)) / 2)
    figure, places = pyplot.subplots(rows, 2, figsize=(10, 4.2 * rows), sharey=True, squeeze=False)
    places = list(places.flat)
    panels = [(next(iter(curves_by_rate.values())), 2, 1e6, "MB pushed per worker")]
    for gigabits, curves in curves_by_rate.items():
        panels.append((curves, 1, 1, f"seconds, {_shown(gigabits)}"))
    for axes, (curves, index, scale, label) in zip(places, panels, strict=False):
        for case, of_seeds in curves.items():
            points = list(zip(*of_seeds, strict=True))
            at = [_mean(each, index) / scale for each in points]
            style = "--" if "by file" in case else "-"
            axes.plot(at, [_mean(each, 3) for each in points], style, marker=".", label=case)
        axes.set_xlabel(label)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(ticker.NullFormatter())
        axes.grid(alpha=0.3, which="both")
    for axes in places[len(panels) :]:
        axes.remove()
    for axes in places[: len(panels) : 2]:
        axes.set_ylabel("validation loss, nats")
    places[1].legend(fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.local_steps", description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--gigabits", type=float, nargs="+", default=[0.1])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=832)
    parser.add_argument("--local-steps", type=int, default=64)
    parser.add_argument("--only", nargs="+", choices=_CASES, default=list(_CASES), metavar="CASE")
    parser.add_argument("--plot", default="build/bench/local_steps.svg", metavar="FILE")
    given = parser.parse_args(arguments)
    if given.steps % given.local_steps:
        parser.error(f"--steps {given.steps} is no multiple of --local-steps {given.local_steps}")
    cases = list(dict.fromkeys([_SYNCHRONOUS, *given.only]))
    curves, rows = {}, []
    for gigabits in given.gigabits:
        of_all = (given.workers, given.servers, gigabits)
        try:
            found = measure(*of_all, given.seeds, given.steps, given.local_steps, cases)
        except BenchmarkError as error:
            raise SystemExit(f"error: {error}") from None
        curves[gigabits] = found
        what = f"{given.workers} workers, {_shown(gigabits)}, H = {given.local_steps}"
        rows += rows_of(found, what)
        draw(curves, ROOT / given.plot)
    print(f"written to {given.plot}")
    return 0 if report.publish("local_steps", "Local steps", rows, curves) else 1


if __name__ == "__main__":
    sys.exit(main())
