"""What a step with tables of embeddings costs, and what it would cost if ids travelled ahead.

    python -m benchmarks.embedding_steps
    python -m benchmarks.embedding_steps --placement servers --gigabits 0
    python -m benchmarks.embedding_steps --copies --workers 4  # beside tables that all workers have
    python -m benchmarks.embedding_steps --other ../before     # that tree's, in turns

Trains a click predictor of the shapes of DLRM-small on an emulated cluster, each worker and each
server on a host of its own. All steps have the same batch. So a step in which the workers do not
ask each other for rows is right, too, if they have done so once: it shows what is gained at most
by exchanging the ids of a batch while the step before computes.
"""

import contextlib
import dataclasses
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
_COPIES = flags.DEFINE_bool(
    "copies", False, "rows of Keras's own Embedding, too, whose gradients' rows are exchanged"
)
_OTHER = flags.DEFINE_string("other", None, "another checkout with its libraries")
_TABLES = flags.DEFINE_integer("tables", 26, "tables of embeddings")
_ROWS = flags.DEFINE_integer("rows", 100_000, "rows of a table")
_WIDTH = flags.DEFINE_integer("width", 16, "numbers in a row")
_BATCH = flags.DEFINE_integer("batch", 2_048, "samples of a step, of all workers")
_STEPS = flags.DEFINE_integer("steps", 20, "of a turn", lower_bound=1)
_TURNS = flags.DEFINE_integer("turns", 5, "of each job", lower_bound=1)
_PROGRAM = "benchmarks.programs.embedding_steps"


@dataclasses.dataclass(frozen=True)
class _Way:
    """How a job is measured. What is not given is as the options say."""

    root: pathlib.Path = ROOT
    ids_are_known: bool = False
    placement: str | None = None
    settings: dict[str, str] | None = None


def _ways():
    """Each `_Way`, by the name of its row. The others are compared with the first."""
    ways = {"a step": _Way()}
    if _PLACEMENT.value == "workers":
        ways["a step without an exchange of ids"] = _Way(ids_are_known=True)
    if _COPIES.value:
        gathers = {"BYTEPS_ROW_SUM_WORKERS": "0"}
        ways["a step with copies, rows gathered"] = _Way(placement="copies", settings=gathers)
        ways["a step with copies"] = _Way(placement="copies")
    if _OTHER.value:
        ways["a step of the other tree"] = _Way(root=pathlib.Path(_OTHER.value).resolve())
    return ways


def _cluster(workers):
    """A context manager of an emulated cluster, or of `None` for this host."""
    if not _GIGABITS.value:
        return contextlib.nullcontext()
    return EmulatedCluster(workers + _SERVERS.value, _GIGABITS.value)


@contextlib.contextmanager
def _session(workers, cluster, way):
    """The workers of a job, which have joined and have a model."""
    with Job(
        _PROGRAM, workers, _SERVERS.value, cluster=cluster, settings=way.settings, root=way.root
    ) as job:
        session = job.workers
        session.call("join", timeout=600)
        session.call(
            "prepare",
            timeout=600,
            placement=way.placement or _PLACEMENT.value,
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
    notes = {}
    with contextlib.ExitStack() as stack:
        cluster, runs = stack.enter_context(_cluster(workers)), {}
        for name, way in _ways().items():
            session = stack.enter_context(_session(workers, cluster, way))
            session.call("begin", ids_are_known=way.ids_are_known, timeout=600)
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
