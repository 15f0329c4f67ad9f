"""CPU time and memory of servers and workers, against the least that the same bytes cost.

python -m benchmarks.cost --path memory
"""

import argparse
import json
import sys
import time

from benchmarks import native, report
from benchmarks.jobs import Job
from benchmarks.measure import Runs, cpu_seconds, interleaved, ratios, shown
from benchmarks.models import resnet50, uniform
from benchmarks.report import Row
from benchmarks.sessions import BenchmarkError

_ENGINE = "benchmarks.programs.engine"
_PATHS = {"memory": {"BYTEPS_ENABLE_IPC": "1"}, "tcp": {"BYTEPS_ENABLE_IPC": "0"}}
_EXCHANGES = 4  # in each run
_BASELINE_MEGABYTES = 1000
_MEGABYTE = 1e6
_IDLE_SECONDS = 3.0


def cpu_rows(path, rounds, workers=4):
    """CPU seconds per GB of one server and of its workers; rows."""
    model = uniform(16)
    gigabytes = _EXCHANGES * model.bytes * 1e-9
    with Job(_ENGINE, workers, 1, settings=_PATHS[path]) as job:
        job.workers.call("join")
        job.workers.call("prepare", group="model", tensors=model.tensors)
        job.workers.call("exchange", group="model")
        worker_runs = []

        def engine():
            server, worker = job.server_pids[0], job.workers.pids[0]
            before = cpu_seconds(server), cpu_seconds(worker)
            for _ in range(_EXCHANGES):
                job.workers.call("exchange", group="model")
            worker_runs.append((cpu_seconds(worker) - before[1]) / gigabytes)
            return (cpu_seconds(server) - before[0]) / (workers * gigabytes)

        parts = []

        def baseline():
            parts.append(json.loads(native.run("cpu_cost", path, _BASELINE_MEGABYTES)))
            return sum(parts[-1].values())

        with report.progress() as bar:
            task = bar.add_task(f"CPU time, {path}", total=2 * rounds)
            runs = interleaved(
                rounds, "CPU s/GB", {"server": engine, "least": baseline}, lambda: bar.advance(task)
            )
    pieces = ", ".join(f"{name} {shown(parts[-1][name])}" for name in parts[-1])
    case = f"{workers} workers, 1 server, payloads by {_NAMES[path]}"
    return [
        Row("server, CPU per GB pushed", case, runs["server"]),
        Row("worker, CPU per GB of gradients", case, Runs(tuple(worker_runs), "CPU s/GB")),
        Row("one receive + one sum + one send", case, runs["least"], note=pieces),
        Row(
            "server's CPU against receive + sum + send",
            case,
            ratios(runs["server"], runs["least"]),
            ("<=", 1.5),
            goal="server CPU",
        ),
    ]


_NAMES = {"memory": "reading the peer's memory", "tcp": "TCP"}


def memory_rows(workers=2, exchanges=5):
    """Peak memory of a server, and what the engine adds to a worker; rows."""
    model = resnet50()
    case = f"ResNet-50, {model.bytes / _MEGABYTE:.0f} MB, {workers} workers, 1 server"
    with Job(_ENGINE, workers, 1) as job:
        alone = job.workers.call("resident_bytes")
        job.workers.call("join")
        joined = job.workers.call("resident_bytes")
        job.workers.call("prepare", group="model", tensors=model.tensors)
        prepared = job.workers.call("resident_bytes")
        for _ in range(exchanges):
            job.workers.call("exchange", group="model")
        peaks = job.workers.call("peak_bytes")
        server = _peak_megabytes(job.server_pids[0])
    added = [
        (after - before + peak - full) / _MEGABYTE
        for before, after, full, peak in zip(alone, joined, prepared, peaks)
    ]
    limit = 2 * model.bytes / _MEGABYTE + 100
    return [
        Row(
            "server memory, peak",
            case,
            Runs((server,), "MB"),
            ("<=", limit),
            "all of its process",
            goal="server memory",
        ),
        Row(
            "memory that the engine adds to a worker, peak",
            case,
            Runs((max(added),), "MB"),
            ("<=", 64),
            "besides gradients and sums; one value for each job: the larger worker's",
            goal="worker memory",
        ),
    ]


def memory_after_a_loss_row(workers=2, exchanges=5):
    """Peak memory of a server that has taken over what another one had."""
    model = resnet50()
    with Job(_ENGINE, workers, 2) as job:
        job.workers.call("join")
        job.workers.call("prepare", group="model", tensors=model.tensors)
        for exchange in range(2 * exchanges):
            if exchange == exchanges:
                job.kill_server(0)
            job.workers.call("exchange", group="model")
        job.workers.call("check", group="model")
        server = _peak_megabytes(job.server_pids[1])
    return Row(
        "server memory, peak",
        f"the same, {workers} workers, 2 servers of which one is lost",
        Runs((server,), "MB"),
        ("<=", 2 * model.bytes / _MEGABYTE + 100),
        "of the other one",
        goal="server memory",
    )


def _peak_megabytes(pid):
    with open(f"/proc/{pid}/status") as file:
        (line,) = (line for line in file if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / _MEGABYTE


def idle_row(workers=2):
    """What a job costs that does nothing."""
    with Job(_ENGINE, workers, 1) as job:
        job.workers.call("join")
        job.workers.call("barrier")
        pids, values = job.pids, []
        for _ in range(3):
            before = sum(map(cpu_seconds, pids))
            time.sleep(_IDLE_SECONDS)
            values.append(100 * (sum(map(cpu_seconds, pids)) - before) / _IDLE_SECONDS)
    case = f"{workers} workers, 1 server, scheduler"
    return Row("an idle job", case, Runs(tuple(values), "% of a core"), ("<=", 1.0), goal="idle")


def run(paths, rounds):
    rows = [row for path in paths for row in cpu_rows(path, rounds)]
    return rows + memory_rows() + [memory_after_a_loss_row(), idle_row()]


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost", description=__doc__)
    parser.add_argument("--path", nargs="+", choices=sorted(_PATHS), default=sorted(_PATHS))
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(arguments)
    try:
        rows = run(given.path, given.rounds)
    except BenchmarkError as error:
        raise SystemExit(f"error: {error}") from None
    return 0 if report.publish("cost", "CPU time and memory", rows) else 1


if __name__ == "__main__":
    sys.exit(main())
