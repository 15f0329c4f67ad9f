"""What it costs to be watched: an endpoint that is scraped each second, and a recorded timeline.

The 161 gradients of ResNet-50, 2 workers and a server on this machine. Three jobs live at the same
time and take turns: as it is (its counters are always on), with metrics, and with a timeline. The
time that exchanges take varies more than what being watched costs, so that the CPU time of all
processes of a job is measured, too. A round takes about a minute.

    python -m benchmarks.telemetry --rounds 11
"""

import contextlib
import pathlib
import tempfile
import threading
import time
import urllib.request

from absl import flags

from benchmarks import options, report
from benchmarks.jobs import Job
from benchmarks.loopback import duration
from benchmarks.measure import Runs, cpu_seconds, interleaved, ratios
from benchmarks.models import resnet50
from benchmarks.report import Row
from benchmarks.sessions import BenchmarkError
from tf_byteps.timeline import files

_ENGINE = "benchmarks.programs.engine"
# How often all gradients are exchanged in a run, and for how many seconds each is computed.
# Some three seconds, so that each run is scraped.
_CASES = {
    "exchanges back to back": (60, 0.0),
    "exchanges of steps that compute for 0.2 s": (15, 0.2),
}
_PORT = 29410
_PROCESSES = 4  # workers, server and scheduler, at consecutive ports
_SCRAPE_SECONDS = 1.0
_FLUSH_SECONDS = 2.5  # within which a process writes what its timeline has recorded
_SCRAPED, _TIMELINE = "scraped each second", "timeline"
_WATCHED = {_SCRAPED: 1.005, _TIMELINE: 1.01}  # and the ratio to stay below
_IDLE_ROUNDS = 15


def _scrape():
    """Reads the metrics of all processes of a job once, as Prometheus would."""
    for port in range(_PORT, _PORT + _PROCESSES):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            if not answer.read():
                raise BenchmarkError(f"the endpoint at port {port} has nothing to say")


@contextlib.contextmanager
def _scraped():
    """Scrapes each second for the time of a `with` block, from the middle of the first one on."""
    ended = threading.Event()

    def run():
        wait = _SCRAPE_SECONDS / 2
        while not ended.wait(wait):
            _scrape()
            wait = _SCRAPE_SECONDS

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _cpu_seconds(job):
    return sum(map(cpu_seconds, job.pids))


def _case_rows(jobs, case, rounds):
    """Times and CPU times of one of `_CASES`; rows."""
    exchanges, during = _CASES[case]
    spent = {name: [] for name in jobs}

    def turn(name):
        job, watching = jobs[name], _scraped if name == _SCRAPED else contextlib.nullcontext
        before = _cpu_seconds(job)
        with watching():
            seconds = [
                duration(job.workers.call("exchange", group="model", during=during))
                for _ in range(exchanges)
            ]
        time.sleep(_FLUSH_SECONDS)  # what has been recorded is written at this run's cost
        spent[name].append(_cpu_seconds(job) - before)
        return sum(seconds)

    with report.progress() as bar:
        task = bar.add_task(case, total=rounds * len(jobs))
        run = {name: lambda name=name: turn(name) for name in jobs}
        times = interleaved(rounds, "s", run, lambda: bar.advance(task))
    cpu = {name: Runs(tuple(values), "CPU s") for name, values in spent.items()}
    rows = []
    for name in jobs:
        rows += [Row("watching", f"{exchanges} {case}: {name}", r[name]) for r in (times, cpu)]
    for name, limit in _WATCHED.items():
        for what, runs in (("time", times), ("CPU time", cpu)):
            watched = ratios(runs[name], runs["plain"])
            # A CPU that is idle while others compute is not part of a step's time.
            target = None if during and runs is cpu else ("<=", limit)
            rows.append(Row("watching", f"{case}: {what}, {name}, against plain", watched, target))
    return rows


def _one_scrape_rows(job):
    """What a scrape of all processes costs each of them; rows."""
    costs = {"a worker": [job.workers.pids[0]], "all processes": job.pids}
    values = {name: [] for name in costs}
    for _ in range(_IDLE_ROUNDS):
        used = {name: [] for name in costs}
        for work in (lambda: None, _scrape):
            before = {name: sum(map(cpu_seconds, pids)) for name, pids in costs.items()}
            end = time.monotonic() + 1.1 * _SCRAPE_SECONDS  # the scheduler reads others anew
            work()
            time.sleep(max(0, end - time.monotonic()))
            for name, pids in costs.items():
                used[name].append(sum(map(cpu_seconds, pids)) - before[name])
        for name, (idle, scraped) in used.items():
            values[name].append(1000 * (scraped - idle))
    return [
        Row("watching", f"one scrape of an idle job: {name}", Runs(tuple(ms), "CPU ms"))
        for name, ms in values.items()
    ]


def _check_timeline(folder):
    """Fails if a worker's recording was full before the end: the rest has cost nothing."""
    for path in pathlib.Path(folder).glob(files.WORKERS):
        if files.about(str(path)).get("dropped_exchanges"):
            raise BenchmarkError("timelines have become full: ask for fewer rounds")


def run(rounds):
    """The rows of the benchmark."""
    tensors = resnet50().tensors
    settings = {"plain": {}, _SCRAPED: {"BYTEPS_METRICS_PORT": str(_PORT)}}
    with tempfile.TemporaryDirectory(prefix="byteps_bench_") as folder:
        settings[_TIMELINE] = {"BYTEPS_TIMELINE": f"{folder}/"}
        with contextlib.ExitStack() as stack:
            jobs = {
                name: stack.enter_context(Job(_ENGINE, 2, 1, settings=variables))
                for name, variables in settings.items()
            }
            for job in jobs.values():
                job.workers.call("join")
                job.workers.call("prepare", group="model", tensors=tensors)
                job.workers.call("exchange", group="model")
            rows = [row for case in _CASES for row in _case_rows(jobs, case, rounds)]
            rows += _one_scrape_rows(jobs[_SCRAPED])
            for job in jobs.values():
                job.finish()
        _check_timeline(folder)
    return rows


def main():
    return report.publish("telemetry", "What it costs to be watched", run(flags.FLAGS.rounds))


if __name__ == "__main__":
    flags.DEFINE_integer("rounds", 11, "turns of each job", lower_bound=1)
    options.run(main)
