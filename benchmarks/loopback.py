"""Workers on this machine: push_pull against PyTorch's Gloo, latency, many tensors against one.

Workers without TensorFlow; every competitor's processes live at the same time and take turns.

    python -m benchmarks.loopback --workers 2 --megabytes 64
"""

import argparse
import contextlib
import sys
import tempfile

from benchmarks import peers, report
from benchmarks.jobs import Job, settings_of
from benchmarks.measure import Runs, interleaved, ratios, shown
from benchmarks.models import FLOAT_BYTES, resnet50
from benchmarks.report import Row
from benchmarks.sessions import BenchmarkError

_ENGINE = "benchmarks.programs.engine"
_GLOO = "benchmarks.programs.gloo"
_LATENCY_BYTES = (4, 256, 4096, 16384, 65536)
_WARMUPS = 2


def duration(spans):
    """From the first process's begin to the last one's end."""
    return max(end for _, end in spans) - min(begin for begin, _ in spans)


@contextlib.contextmanager
def competitors(workers, servers, settings=None):
    """Sessions of the engine's workers and, if PyTorch is there, of Gloo's, by name."""
    with contextlib.ExitStack() as stack:
        job = stack.enter_context(Job(_ENGINE, workers, servers, settings=settings))
        sessions = {"tf_byteps": job.workers}
        if not peers.TORCH.why_missing:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="byteps_bench_"))
            gloo = stack.enter_context(peers.gloo_session(_GLOO, workers, folder))
            sessions["torch Gloo"] = gloo
        for session in sessions.values():
            session.call("join")
        yield sessions


def _prepare(sessions, group, elements):
    sessions["tf_byteps"].call("prepare", group=group, tensors=[["tensor", [elements]]])
    if "torch Gloo" in sessions:
        sessions["torch Gloo"].call("prepare", group=group, elements=elements)


def all_reduce_rows(sessions, servers, megabytes, rounds):
    """One tensor in each of the sessions; rows of times and, with Gloo, of the ratio."""
    workers = len(sessions["tf_byteps"])
    place = f"{servers} servers" if servers else "colocated servers"
    rows = []
    for size in megabytes:
        group = f"{size} MB"
        _prepare(sessions, group, size * 2**20 // FLOAT_BYTES)
        with report.progress() as bar:
            task = bar.add_task(f"{workers} workers, {group}", total=rounds * len(sessions))
            run = {
                name: lambda session=session, group=group: duration(
                    session.call("exchange", group=group)
                )
                for name, session in sessions.items()
            }
            for function in run.values():
                for _ in range(_WARMUPS):
                    function()
            times = interleaved(rounds, "s", run, lambda task=task, bar=bar: bar.advance(task))
        sessions["tf_byteps"].call("check", group=group)
        case = f"{workers} workers, {group}, {place}"
        for name, runs in times.items():
            milliseconds = runs.map(lambda s: 1000 * s, "ms")
            rows.append(Row("loopback push_pull", f"{case}: {name}", milliseconds))
        if "torch Gloo" in times:
            speeds = ratios(times["torch Gloo"], times["tf_byteps"])
            rows.append(_speed_row(workers, case, speeds))
    return rows


def _speed_row(workers, case, speeds, note=""):
    target, goal = ((">=", 2.0), "loopback") if workers == 2 else (None, "")
    return Row("loopback, speed against torch Gloo", case, speeds, target, note, goal=goal)


def latency_rows(sessions, rounds, count=100):
    """Single small exchanges, one after the other; the median of each round counts."""
    rows = []
    for size in _LATENCY_BYTES:
        group = f"{size} bytes"
        _prepare(sessions, group, size // FLOAT_BYTES)
        run = {
            name: lambda session=session, group=group: 1e6 * median_seconds(session, group, count)
            for name, session in sessions.items()
        }
        for function in run.values():
            function()
        for name, runs in interleaved(rounds, "µs", run).items():
            rows.append(Row("latency", f"{len(sessions[name])} workers, {size} B: {name}", runs))
    return rows


def median_seconds(session, group, count):
    """Of `count` exchanges of a group's only tensor; of the worker for which it is the longest."""
    answers = session.call("latency", group=group, count=count)
    return max(Runs(tuple(seconds), "s").median for seconds in answers)


def many_tensors_row(session, rounds):
    """All gradients of ResNet-50 in one step against one tensor of the same size."""
    model = resnet50()
    session.call("prepare", group="many", tensors=model.tensors)
    session.call("prepare", group="one", tensors=[["tensor", [model.elements]]])
    run = {
        group: lambda group=group: duration(session.call("exchange", group=group))
        for group in ("many", "one")
    }
    for function in run.values():
        for _ in range(_WARMUPS):
            function()
    with report.progress() as bar:
        task = bar.add_task("161 tensors and one", total=2 * rounds)
        times = interleaved(rounds, "s", run, lambda: bar.advance(task))
    session.call("check", group="many")
    note = ", ".join(f"{name}: {shown(1000 * runs.median)} ms" for name, runs in times.items())
    return Row(
        "161 tensors of ResNet-50 against one tensor",
        f"{len(session)} workers, {model.bytes / 1e6:.0f} MB",
        ratios(times["many"], times["one"]),
        ("<=", 1.3),
        note,
        goal="many tensors",
    )


def run(workers, servers, megabytes, rounds, latency=True, many=True, settings=None):
    """All of this module for one number of workers; returns rows."""
    with competitors(workers, servers, settings) as sessions:
        rows = all_reduce_rows(sessions, servers, megabytes, rounds)
        if "torch Gloo" not in sessions:
            rows.append(_speed_row(workers, "", None, peers.TORCH.why_missing))
        if latency:
            rows += latency_rows(sessions, rounds)
        if many:
            rows.append(many_tensors_row(sessions["tf_byteps"], rounds))
    return rows


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loopback", description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    parser.add_argument(
        "--servers", type=int, default=0, help="server processes; 0: the workers host servers"
    )
    parser.add_argument("--megabytes", type=int, nargs="*", default=[64, 256], help="MiB")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="VARIABLE=VALUE", help="settings of all processes"
    )
    given = parser.parse_args(arguments)
    settings = settings_of(given.set)
    rows = []
    try:
        for workers in given.workers:
            first = workers == given.workers[0]
            rows += run(
                workers, given.servers, given.megabytes, given.rounds, first, first, settings
            )
    except BenchmarkError as error:
        raise SystemExit(f"error: {error}") from None
    return 0 if report.publish("loopback", "On one machine", rows) else 1


if __name__ == "__main__":
    sys.exit(main())
