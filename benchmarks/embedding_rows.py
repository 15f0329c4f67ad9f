"""What the rows of embeddings cost: bytes against formulas, and sums on servers against gathers.

    python -m benchmarks.embedding_rows
    python -m benchmarks.embedding_rows --workers 2 --workers 8 --draws films
    python -m benchmarks.embedding_rows --gigabits 1     # on an emulated cluster

Each worker draws the ids of a batch by Zipf's law: of 1,682 films (256 ids, 64 columns), of 30,522
words (8,192 ids, 1,024 columns), or of a million rows (53,248 ids, 16 columns). A worker touches u
rows of R bytes, all n together U different ones. The formulas (docs/compression.md): a gather sends
u (R + 8) bytes and brings n u (R + 8); a sum on servers sends u (R + 2) and brings U (R + 2).

Bytes are counted, and do not depend on the machine. Times are of jobs that take turns: one with
gathers, one with default settings. A worker's time includes that it merges its own rows, and adds
up what a gather brings. The servers' CPU time for each byte of rows that they add up is compared
with that for each byte of a tensor.
"""

import contextlib
import itertools

import numpy as np
from absl import flags

from benchmarks import options, report
from benchmarks.cluster import EmulatedCluster
from benchmarks.draws import DRAWS, ids_of
from benchmarks.jobs import Job
from benchmarks.loopback import duration
from benchmarks.measure import Runs, cpu_seconds, interleaved, ratios
from benchmarks.report import Row

_WORKERS = flags.DEFINE_multi_integer("workers", [2, 4, 8], "in a job; may be given again")
_DRAWS = flags.DEFINE_multi_enum("draws", list(DRAWS), list(DRAWS), "may be given again")
_TURNS = flags.DEFINE_integer("turns", 5, "batches of each job", lower_bound=1)
_GIGABITS = flags.DEFINE_float(
    "gigabits", None, "a second, of each link of an emulated cluster; all on this host without it"
)
_PROGRAM = "benchmarks.programs.embedding_rows"
_CHOICE = "BYTEPS_ROW_SUM_WORKERS"
_SERVERS = 2
_WARMUPS = 2  # the first rows are gathered in any case
_FLOAT_BYTES = 4
_PLAIN_MEGABYTES = 40
_GATHERED_INDEX, _SUMMED_INDEX = 8, 2  # bytes


def _touched(draw, workers, turn):
    """The rows that each worker touches, and how many different ones all do."""
    rows = [np.unique(ids_of(draw, rank, turn)) for rank in range(workers)]
    return [len(each) for each in rows], len(np.unique(np.concatenate(rows)))


def _expected(how, draw, workers, turns):
    """The bytes of all workers up, and down."""
    size = DRAWS[draw][1] * _FLOAT_BYTES
    up = down = 0
    for turn in turns:
        own, union = _touched(draw, workers, turn)
        index = _GATHERED_INDEX if how == "gather" else _SUMMED_INDEX
        up += sum(own) * (size + index)
        down += workers * (sum(own) if how == "gather" else union) * (size + index)
    return up, down


def _rows_of_bytes(how, draw, workers, moved):
    """Rows: how far counted bytes are from the formula.

    Args:
        how: "gather" or "sum".
        draw: one of `DRAWS`.
        workers: their number.
        moved: for each turn what each worker has pushed and received.
    """
    turns = range(_WARMUPS, len(moved))
    expected = _expected(how, draw, workers, turns)
    rows = []
    for way, formula, column in zip(("up", "down"), expected, (0, 1), strict=True):
        counted = sum(worker[column] for turn in turns for worker in moved[turn])
        rows.append(
            Row(
                f"bytes {way}, from the formula",
                f"{draw}, {workers} workers, {how}",
                Runs((100 * abs(counted / formula - 1),), "%"),
                ("<=", 2),
                f"{counted / len(turns) / workers / 1e6:.3f} MB of a worker",
            )
        )
    return rows


def _turns_of(sessions, draw, rows):
    """Lets the jobs take turns; adds rows of bytes, returns the `Runs` of each."""
    moved = {how: [] for how in sessions}
    counts = {how: itertools.count() for how in sessions}

    def once(how):
        answers = sessions[how].call("run", draw=draw, turn=next(counts[how]), timeout=300)
        moved[how].append([answer[2:] for answer in answers])
        return duration([answer[:2] for answer in answers])

    run = {how: (lambda how=how: once(how)) for how in sessions}
    for _ in range(_WARMUPS):
        for each in run.values():
            each()
    times = interleaved(_TURNS.value, "s", run)
    workers = len(sessions["gather"])
    for how in ("gather", "sum"):
        rows += _rows_of_bytes(how, draw, workers, moved[how])
    return times


def _servers_row(job, draw, case):
    """The row of what servers take for rows, against what they take for a tensor."""

    def seconds_for_a_gigabyte(exchange):
        """CPU time of all servers, over the bytes that all workers have pushed."""
        before = sum(map(cpu_seconds, job.server_pids))
        pushed = sum(exchange(turn) for turn in range(_WARMUPS, _WARMUPS + _TURNS.value))
        return 1e9 * (sum(map(cpu_seconds, job.server_pids)) - before) / pushed

    def add_rows(turn):
        return sum(answer[2] for answer in job.workers.call("run", draw=draw, turn=turn))

    def add_tensor(_):
        return sum(job.workers.call("add_up", megabytes=_PLAIN_MEGABYTES))

    add_tensor(0)  # the first one makes the servers' memory
    run = {"rows": lambda: seconds_for_a_gigabyte(add_rows)}
    run["tensor"] = lambda: seconds_for_a_gigabyte(add_tensor)
    found = interleaved(_TURNS.value, "CPU s/GB", run)
    return Row(
        "servers' CPU for a byte of rows, of a tensor's",
        case,
        ratios(found["rows"], found["tensor"]),
        ("<=", 2),
        f"{found['rows'].median:.2f} and {found['tensor'].median:.2f} CPU seconds for a GB",
    )


@contextlib.contextmanager
def _jobs(workers):
    """Each job, by how it adds up rows."""
    settings = {"gather": "0", "sum": "1", "default": "-1"}
    with contextlib.ExitStack() as stack:
        cluster = None
        if _GIGABITS.value is not None:
            cluster = stack.enter_context(EmulatedCluster(workers + _SERVERS, _GIGABITS.value))
        jobs = {}
        for how, number in settings.items():
            job = Job(_PROGRAM, workers, _SERVERS, cluster=cluster, settings={_CHOICE: number})
            jobs[how] = stack.enter_context(job)
            jobs[how].workers.call("join")
        yield jobs
        for job in jobs.values():
            job.workers.call("leave")


def _rows_of(workers):
    rows = []
    links = "this host" if _GIGABITS.value is None else f"{_GIGABITS.value:g} Gbit/s"
    with report.progress() as bar, _jobs(workers) as jobs:
        sessions = {how: job.workers for how, job in jobs.items()}
        task = bar.add_task(f"{workers} workers", total=len(_DRAWS.value))
        for draw in _DRAWS.value:
            for session in sessions.values():
                session.call("prepare", draw=draw)
            times = _turns_of(sessions, draw, rows)
            for how, least in (("default", 1.5 if workers == 8 else None), ("sum", None)):
                rows.append(
                    Row(
                        f"{how}, speed against a gather",
                        f"{draw}, {workers} workers, {links}",
                        ratios(times["gather"], times[how]),
                        least and (">=", least),
                        f"a gather takes {1000 * times['gather'].median:.1f} ms",
                    )
                )
            rows.append(_servers_row(jobs["sum"], draw, f"{draw}, {workers} workers, {links}"))
            bar.advance(task)
    return rows


def main():
    rows = [row for workers in _WORKERS.value for row in _rows_of(workers)]
    return report.publish("embedding_rows", "Rows of embeddings", rows)


if __name__ == "__main__":
    options.run(main)
