"""What a step with tables of embeddings costs, and what it would cost if ids travelled ahead.

    python -m benchmarks.embedding_steps
    python -m benchmarks.embedding_steps --placement servers --gigabits 0
    python -m benchmarks.embedding_steps --other ../before     # that tree's, in turns

Trains a click predictor of the shapes of DLRM-small on an emulated cluster, each worker and each
server on a host of its own. All steps have the same batch. So a step in which the workers do not
ask each other for rows is right, too, if they have done so once: it shows what is gained at most
by exchanging the ids of a batch while the step before computes.
"""

import contextlib
import pathlib

from absl import flags

from benchmarks import options, report
from benchmarks.cluster import EmulatedCluster
from benchmarks.jobs import Job
from benchmarks.loopback import duration
from benchmarks.measure import Runs, interleaved, ratios
from benchmarks.report import Row
from benchmarks.sessions import ROOT

_WORKERS = flags.DEFINE_multi_integer("workers", [2], "in a job; may be given again")
_SERVERS = flags.DEFINE_integer("servers", 1, "in a job", lower_bound=1)
_GIGABITS = flags.DEFINE_float("gigabits", 1.0, "a second, of each link; 0: all on this host")
_PLACEMENT = flags.DEFINE_enum("placement", "workers", ["workers", "servers"], "of the tables")
_OTHER = flags.DEFINE_string("other", None, "another checkout with its libraries")
_TABLES = flags.DEFINE_integer("tables", 26, "tables of embeddings")
_ROWS = flags.DEFINE_integer("rows", 100_000, "rows of a table")
_WIDTH = flags.DEFINE_integer("width", 16, "numbers in a row")
_BATCH = flags.DEFINE_integer("batch", 2_048, "samples of a step, of all workers")
_STEPS = flags.DEFINE_integer("steps", 20, "of a turn", lower_bound=1)
_TURNS = flags.DEFINE_integer("turns", 5, "of each job", lower_bound=1)
_PROGRAM = "benchmarks.programs.embedding_steps"


def _cluster(workers):
    """A context manager of an emulated cluster, or of `None` for this host."""
    if not _GIGABITS.value:
        return contextlib.nullcontext()
    return EmulatedCluster(workers + _SERVERS.value, _GIGABITS.value)


@contextlib.contextmanager
def _session(workers, cluster, root):
    """The workers of a job, which have joined and have a model."""
    with Job(_PROGRAM, workers, _SERVERS.value, cluster=cluster, root=root) as job:
        session = job.workers
        session.call("join", timeout=600)
        session.call(
            "prepare",
            timeout=600,
            placement=_PLACEMENT.value,
            tables=_TABLES.value,
            rows=_ROWS.value,
            width=_WIDTH.value,
            batch=_BATCH.value,
        )
        yield session
        session.call("leave")


def _turn(session, notes, name):
    """The milliseconds of a step. `notes` gets the kilobytes that a worker sent and received in
    it, the milliseconds that its processor worked, and the loss."""
    answers = session.call("steps", number=_STEPS.value, timeout=600)
    steps = _STEPS.value
    sent, received, cpu = (max(each[at] for each in answers) / steps for at in (2, 3, 4))
    notes[name] = (
        f"a worker sends {sent / 1e3:.0f} kB and receives {received / 1e3:.0f} kB, "
        f"{1000 * cpu:.0f} ms of CPU time; loss {answers[0][5]:.6f}"
    )
    return 1000 * duration([each[:2] for each in answers]) / steps


def _rows_of(workers):
    links = f"{_GIGABITS.value:g} Gbit/s" if _GIGABITS.value else "this host"
    case = f"{workers} workers, {_SERVERS.value} servers, tables on {_PLACEMENT.value}, {links}"
    ways = {"a step": (ROOT, False)}
    if _PLACEMENT.value == "workers":
        ways["a step without an exchange of ids"] = (ROOT, True)
    if _OTHER.value:
        ways["a step of the other tree"] = (pathlib.Path(_OTHER.value).resolve(), False)
    notes = {}
    with contextlib.ExitStack() as stack:
        cluster, runs = stack.enter_context(_cluster(workers)), {}
        for name, (root, ids_are_known) in ways.items():
            session = stack.enter_context(_session(workers, cluster, root))
            session.call("begin", ids_are_known=ids_are_known, timeout=600)
            runs[name] = lambda session=session, name=name: _turn(session, notes, name)
        for run in runs.values():
            run()
        times = interleaved(_TURNS.value, "ms", runs)
    rows = [Row(name, case, found, note=notes[name]) for name, found in times.items()]
    for name, found in list(times.items())[1:]:
        of_first = ratios(found, times["a step"])
        rows.append(Row(f"{name}, of a step", case, Runs(of_first.values, "×")))
    return rows


def main():
    rows = [row for workers in _WORKERS.value for row in _rows_of(workers)]
    return report.publish("embedding_steps", "Steps with tables of embeddings", rows)


if __name__ == "__main__":
    options.run(main)
