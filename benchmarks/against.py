"""The engine of this tree against that of another checkout: whether a change costs speed.

    git worktree add ../before COMMIT && (cd ../before && make build)
    python -m benchmarks.against --other ../before

The jobs of both live at the same time and take turns. A figure is the other's time divided by this
tree's, within one turn: 1 is as fast, more is faster.
"""

import contextlib
import pathlib

from absl import flags

from benchmarks import options, report
from benchmarks.jobs import Job
from benchmarks.loopback import duration, median_seconds
from benchmarks.measure import interleaved, ratios, shown
from benchmarks.models import FLOAT_BYTES, resnet50
from benchmarks.report import Row
from benchmarks.sessions import BenchmarkError

_ENGINE = "benchmarks.programs.engine"
_TARGET = (">=", 0.99)
_WARMUPS = 3
_EXCHANGES = 100  # small ones, of which the median counts

_OTHER = flags.DEFINE_string("other", None, "the other checkout", required=True)
_WORKERS = flags.DEFINE_integer("workers", 2, "of each job", lower_bound=1)
_SERVERS = flags.DEFINE_integer("servers", 1, "0: the workers host servers", lower_bound=0)
_ROUNDS = flags.DEFINE_integer("rounds", 15, "turns of each", lower_bound=1)


def _groups():
    """The tensors of each case, by its name."""
    return {
        "64 MB": [["tensor", [64 * 2**20 // FLOAT_BYTES]]],
        "161 tensors of ResNet-50": resnet50().tensors,
        "391 tensors of 64 KB": [[f"t{i}", [2**14]] for i in range(391)],
    }


def rows(other):
    """All rows.

    Args:
        other: the root of another checkout.
    """
    settings = {"BYTEPS_ENABLE_IPC": "0"}  # with the Van that most jobs have between hosts
    with contextlib.ExitStack() as stack:
        jobs = {
            name: stack.enter_context(
                Job(_ENGINE, _WORKERS.value, _SERVERS.value, settings=settings, **place)
            )
            for name, place in {"this": {}, "other": {"root": other}}.items()
        }
        sessions = {name: job.workers for name, job in jobs.items()}
        for session in sessions.values():
            session.call("join")
        found = [_row(sessions, case, tensors) for case, tensors in _groups().items()]
        return [*found, _latency_row(sessions, 4), _latency_row(sessions, 2**16)]


def _row(sessions, case, tensors):
    for session in sessions.values():
        session.call("prepare", group=case, tensors=tensors)
    row = _compared(
        case,
        {
            name: lambda session=session: duration(session.call("exchange", group=case))
            for name, session in sessions.items()
        },
    )
    for session in sessions.values():
        session.call("check", group=case)
        session.call("forget", group=case)
    return row


def _latency_row(sessions, size):
    case = f"one exchange of {size} bytes"
    for session in sessions.values():
        session.call("prepare", group=case, tensors=[["tensor", [size // FLOAT_BYTES]]])
    return _compared(
        case,
        {
            name: lambda session=session: median_seconds(session, case, _EXCHANGES)
            for name, session in sessions.items()
        },
    )


def _compared(case, run):
    for function in run.values():
        for _ in range(_WARMUPS):
            function()
    with report.progress() as bar:
        task = bar.add_task(case, total=2 * _ROUNDS.value)
        times = interleaved(_ROUNDS.value, "s", run, lambda: bar.advance(task))
    note = ", ".join(f"{name}: {shown(1000 * runs.median)} ms" for name, runs in times.items())
    speeds = ratios(times["other"], times["this"])
    return Row("speed against the other checkout", case, speeds, _TARGET, note)


def main():
    other = pathlib.Path(_OTHER.value).resolve()
    if not list(other.glob("tf_byteps/_engine.*.so")):
        raise BenchmarkError(f"{other} has no engine: give a checkout in which `make build` ran")
    return report.publish("against", "Two checkouts in turns", rows(other))


if __name__ == "__main__":
    options.run(main)
