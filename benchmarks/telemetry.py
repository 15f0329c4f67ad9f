"""What it costs to be watched: an endpoint that is scraped each second, and a recorded timeline.

The 161 gradients of ResNet-50, 2 workers and a server on this machine. Three jobs live at the same
time and take turns: as it is (its counters are always on), with metrics, and with a timeline.

    python -m benchmarks.telemetry --rounds 41
"""

import argparse
import contextlib
import sys
import tempfile
import threading
import urllib.request

from benchmarks import report
from benchmarks.jobs import Job
from benchmarks.loopback import duration
from benchmarks.measure import interleaved, ratios
from benchmarks.models import resnet50
from benchmarks.report import Row
from benchmarks.sessions import BenchmarkError

_ENGINE = "benchmarks.programs.engine"
_EXCHANGES = 20  # in each run: about a second, so that each is scraped
_PORT = 29410
_PROCESSES = 4  # workers, server and scheduler, at consecutive ports
_SCRAPE_SECONDS = 1.0
_WATCHED = {"scraped each second": 1.005, "timeline": 1.01}  # and the ratio to stay below


class _Scraper:
    """Reads the metrics of all processes of a job each second, as Prometheus would."""

    def __init__(self):
        self.scrapes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.wait(_SCRAPE_SECONDS):
            for port in range(_PORT, _PORT + _PROCESSES):
                url = f"http://127.0.0.1:{port}/metrics"
                with urllib.request.urlopen(url, timeout=10) as answer:
                    self.scrapes += len(answer.read()) > 0


def run(rounds):
    """The rows of the benchmark."""
    tensors = resnet50().tensors
    metrics = {"BYTEPS_METRICS_PORT": str(_PORT)}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="byteps_bench_"))
        jobs = {
            name: stack.enter_context(Job(_ENGINE, 2, 1, settings=settings))
            for name, settings in (
                ("plain", {}),
                ("scraped each second", metrics),
                ("timeline", {"BYTEPS_TIMELINE": f"{folder}/"}),
            )
        }
        for job in jobs.values():
            job.workers.call("join")
            job.workers.call("prepare", group="model", tensors=tensors)
        scraper = stack.enter_context(_Scraper())
        with report.progress() as bar:
            task = bar.add_task("watched and not", total=rounds * len(jobs))

            def exchange(job):
                return sum(
                    duration(job.workers.call("exchange", group="model")) for _ in range(_EXCHANGES)
                )

            run = {name: lambda job=job: exchange(job) for name, job in jobs.items()}
            for function in run.values():
                function()
            times = interleaved(rounds, "s", run, lambda: bar.advance(task))
        if scraper.scrapes < rounds:
            raise BenchmarkError(f"only {scraper.scrapes} answers came from the endpoints")
    case = f"{_EXCHANGES} exchanges of ResNet-50's 161 gradients"
    rows = [Row("watching", f"{case}: {name}", runs) for name, runs in times.items()]
    for name, limit in _WATCHED.items():
        watched = ratios(times[name], times["plain"])
        rows.append(Row("watching", f"{name}, against plain", watched, ("<=", limit)))
    return rows


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.telemetry", description=__doc__)
    parser.add_argument("--rounds", type=int, default=41)
    given = parser.parse_args(arguments)
    try:
        rows = run(given.rounds)
    except BenchmarkError as error:
        raise SystemExit(f"error: {error}") from None
    return 0 if report.publish("telemetry", "What it costs to be watched", rows) else 1


if __name__ == "__main__":
    sys.exit(main())
