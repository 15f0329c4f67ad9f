"""Goodput of an elastic job of four workers, of which one is killed every 30 seconds.

    python -m benchmarks.churn --how quorum --phase kills
    python -m benchmarks.churn --how quorum --phase calm

and the same with `--how synchronous`. Each takes eleven minutes; the second one of two prints the
table. bpslaunch starts another worker in the place of each that is killed. Then the same job trains
without kills until as many rows of data are in its weights. Goodput: rows in a second with kills,
as a share of those without; rows count if they are in the global weights.

A character model trains by local steps, whose rounds need three of four workers, or exchanges
gradients in each step and commits every 20 steps. Computing is emulated by a pause in each step:
workers do not share two processors then, as they would not on hosts of their own. A worker that
starts takes what is left of them.
"""

import json
import math
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import psutil
from absl import flags

from benchmarks import options, report
from benchmarks.jobs import environment
from benchmarks.measure import Runs
from benchmarks.report import Row
from benchmarks.sessions import ROOT, BenchmarkError

_HOW = flags.DEFINE_enum("how", "quorum", ["quorum", "synchronous"], "how workers train")
_SECONDS = flags.DEFINE_float("seconds", 600.0, "in which workers are killed", lower_bound=30.0)
_PHASE = flags.DEFINE_enum("phase", "kills", ["kills", "calm"], "which of the two trainings")
_EVERY = flags.DEFINE_float("every", 30.0, "seconds from kill to kill", lower_bound=1.0)
_COMPUTE = flags.DEFINE_float("compute", 0.1, "seconds of a step's pause", lower_bound=0.0)
_PROGRAM = "benchmarks.programs.churn_training"
_WORKERS = 4
_SETTINGS = {
    "BYTEPS_HEARTBEAT_INTERVAL": "1",
    "BYTEPS_HEARTBEAT_TIMEOUT": "20",
    "BYTEPS_ELASTIC_TIMEOUT": "120",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
_TARGETS = {"quorum": (">=", 88), "synchronous": None}
_START_SECONDS = 120


class _Run:
    """A training of bpslaunch. Use as a context manager: nothing is left at its end."""

    def __init__(self, how, seconds=0.0, rows=0, compute=0.0):
        self._folder = tempfile.TemporaryDirectory(prefix="byteps_churn_")
        self.path = pathlib.Path(self._folder.name)
        command = [sys.executable, "-m", "tf_byteps.launch", "--min-np", "1"]
        command += ["--max-np", str(_WORKERS), "--host-failures", "0", "--servers", "1", "--"]
        command += [sys.executable, "-m", _PROGRAM, how, str(self.path)]
        with open(self.path / "output.txt", "wb") as output:
            self.job = subprocess.Popen(
                [*command, str(seconds), str(rows), str(compute)],
                cwd=ROOT,
                env=environment(**_SETTINGS),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.job.poll() is None:
            self.job.terminate()
            try:
                self.job.wait(30)
            except subprocess.TimeoutExpired:
                self.job.kill()
                self.job.wait()
        self._folder.cleanup()

    def begin(self):
        """Waits until rows are in the weights; from then on the time counts."""
        self._until(lambda: self.rows() > 0, _START_SECONDS)
        (self.path / "begin.new").write_text(str(time.time()))
        (self.path / "begin.new").rename(self.path / "begin.txt")
        return self.rows()

    def end(self, limit):
        """Waits for the end; returns what rank 0 has written."""
        self._until(lambda: self.job.poll() is not None, limit)
        if self.job.returncode != 0 or not (self.path / "result.json").exists():
            raise BenchmarkError(f"the job ended with {self.job.returncode}:\n{self.output()}")
        return json.loads((self.path / "result.json").read_text())

    def rows(self):
        """How many are in the global weights, by what workers have written."""
        return max((rows for _, rows in self.lines()), default=0)

    def lines(self):
        """(time, rows) of all workers."""
        found = []
        for path in self.path.glob("rows-*.txt"):
            for line in path.read_text().splitlines():
                words = line.split()
                if len(words) == 2 and line.endswith(words[1]):
                    found.append((float(words[0]), int(words[1])))
        return sorted(found)

    def output(self):
        return (self.path / "output.txt").read_text(errors="replace")[-8000:]

    def workers(self):
        """The worker processes that live."""
        found = []
        for process in psutil.Process(self.job.pid).children(recursive=True):
            try:
                is_python = _PROGRAM in process.cmdline()[:4]
                if is_python and process.environ().get("BYTEPS_MEMBER"):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def _until(self, condition, limit):
        deadline = time.monotonic() + limit
        while not condition():
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{limit:g} s were not enough:\n{self.output()}")
            time.sleep(0.2)


def calm(how, rows, compute):
    """Trains without kills.

    Returns:
        Rows in a second, the loss, and the rows that it is of.
    """
    with _Run(how, rows=rows, compute=compute) as run:
        first = run.begin()
        began = time.time()
        result = run.end(1200)
        ended, last = run.lines()[-1]
    return (last - first) / (ended - began), result["loss"], result["rows"]


def disturbed(how, seconds, every, compute):
    """Trains, and kills a worker now and then.

    Returns:
        A dict: rows (in the weights, of those seconds), loss, all_rows (that the loss is of),
        kills, absent (the seconds that each replaced worker took until it had a round or commit).
    """
    chance = random.Random(1)
    kills, absent = [], []
    with _Run(how, seconds, compute=compute) as run:
        first = run.begin()
        began = time.time()
        for number in range(1, int(seconds / every)):
            time.sleep(max(0.0, began + number * every - time.time()))
            victim = chance.choice(run.workers())
            victim.send_signal(signal.SIGKILL)
            kills.append(time.time())
        result = run.end(seconds + 180)
        firsts = [float(path.read_text().split()[0]) for path in run.path.glob("rows-*.txt")]
        for kill in kills:
            after = [each - kill for each in firsts if each > kill]
            absent.append(min(after, default=float("nan")))
        rows = max(r for when, r in run.lines() if when <= began + seconds) - first
    return {
        "rows": rows,
        "all_rows": result["rows"],
        "loss": result["loss"],
        "kills": len(kills),
        "absent": absent,
    }


def main():
    """Trains once; after the second training, publishes both."""
    how, compute = _HOW.value, _COMPUTE.value
    case = f"{_WORKERS} workers, one killed every {_EVERY.value:g} s, {how}"
    part = f"churn_{how}_kills"
    if _PHASE.value == "kills":
        found = disturbed(how, _SECONDS.value, _EVERY.value, compute)
        rate = found["rows"] / _SECONDS.value
        row = Row("rows/s", case, Runs((rate,), "rows/s"), note=_note(found, _SECONDS.value))
        return report.publish(part, "Workers that are killed", [row], {**found, "rate": rate})
    before = report.published(part)
    if before is None:
        raise BenchmarkError(f"run `python -m benchmarks.churn --how {how} --phase kills` before")
    _, (killed,), found = before
    rate, loss, rows = calm(how, found["all_rows"], compute)
    goodput = 100 * found["rate"] / rate
    above = 100 * (found["loss"] / loss - 1)
    losses = f"{found['loss']:.4f} nats after {found['all_rows']:,} rows, {loss:.4f} after {rows:,}"
    table = [
        Row("goodput", killed.case, Runs((goodput,), "%"), _TARGETS[how], note=killed.note),
        Row("loss above that without kills", case, Runs((above,), "%"), ("<=", 1), note=losses),
    ]
    details = {**found, "calm rate": rate, "calm loss": loss, "calm rows": rows}
    return report.publish(f"churn_{how}", "Workers that are killed", table, details)


def _note(found, seconds):
    absent = sorted(each for each in found["absent"] if not math.isnan(each))
    if not absent:
        return f"{found['kills']} kills"
    middle = absent[len(absent) // 2]
    share = 100 * sum(absent) / _WORKERS / seconds
    return (
        f"{found['kills']} kills; another worker had a result after {middle:.1f} s (median): "
        f"{share:.1f} % of the workers' time"
    )


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    options.run(main)
