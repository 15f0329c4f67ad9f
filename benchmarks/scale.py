"""What jobs of the engine alone cost with many workers, long tensors, TLS, and strangers around.

    python -m benchmarks.scale
    python -m benchmarks.scale --only step end urgent

The workers are in one process, the servers in another, and the coordinator in a third: no Python
and no TensorFlow. Not part of `make bench`: 800 workers wait for 5 minutes.
"""

import argparse
import json
import os
import re
import sys

from benchmarks import native, report
from benchmarks.measure import Runs, ratios
from benchmarks.report import Row
from benchmarks.sessions import BenchmarkError

_PROGRAM = "engine_jobs"
_FEW, _MANY, _SERVERS, _STEPS = 16, 64, 4, 10
_MORE_THAN_LINEAR = 1.3
_MEGABYTES = 134


def _measure(*arguments):
    return json.loads(native.run(_PROGRAM, *arguments))


def _values(measured, name, unit):
    return Runs(tuple(values[name] for values in measured), unit)


def step(rounds):
    """A step of 160 tensors of 4 KB, each worker on a host of its own."""
    few, many = [], []
    for _ in range(rounds):
        few.append(_measure("step", _FEW, _SERVERS, _STEPS))
        many.append(_measure("step", _MANY, _SERVERS, _STEPS))
    rows = []
    for measured, workers in ((few, _FEW), (many, _MANY)):
        case = f"{workers} workers, {_SERVERS} servers, 160 tensors of 4 KB"
        rows += [
            Row("CPU time of a step, servers", case, _values(measured, "servers_cpu", "s")),
            Row("CPU time of a step, workers", case, _values(measured, "workers_cpu", "s")),
        ]
    growth = ratios(_values(many, "servers_cpu", "s"), _values(few, "servers_cpu", "s"))
    growth = growth.map(lambda ratio: ratio / (_MANY / _FEW), "×")
    case = f"{_MANY} workers against {_FEW}, for each of them"
    rows.append(Row("CPU time of a step, servers", case, growth, ("<=", _MORE_THAN_LINEAR)))
    return rows


def end(rounds):
    """All workers leave at once."""
    workers = 512
    measured = [_measure("end", workers, 1) for _ in range(rounds)]
    case = f"{workers} workers, 1 server"
    broken = "" if all(values["ended_well"] for values in measured) else "it ended as a failure"
    return [
        Row("a job ends", case, _values(measured, "wall", "s"), ("<=", 1.0), broken=broken),
        Row(
            "a job ends: CPU time of the coordinator",
            case,
            _values(measured, "coordinator_cpu", "s"),
            ("<=", 0.1),
        ),
    ]


def wait(rounds, workers=800, seconds=300):
    """All but one wait for that one, once: the log says for whom."""
    del rounds
    printed, log = native.run_with_log(
        _PROGRAM, "wait", workers, seconds, seconds=seconds + _PATIENCE
    )
    values = json.loads(printed)
    reports = re.split(r"(?m)^(?=\d{4}-\d\d-\d\d )", log)
    lengths = [part.count("\n") for part in reports if "\n  " in part]
    case = f"{workers} workers wait {seconds} s for one"
    broken = "" if values["ended_well"] else "somebody was taken for lost"
    return [
        Row(
            "a stall: CPU time of the coordinator",
            case,
            Runs((values["coordinator_cpu"],), "s"),
            broken=broken,
        ),
        Row(
            "a stall: lines of the longest report",
            case,
            Runs((max(lengths, default=0),), "lines"),
            ("<=", 40),
            note=f"{len(lengths)} reports, one a minute",
        ),
    ]


def urgent(rounds):
    """40 bytes beside long tensors."""
    values = _measure("urgent", _MEGABYTES, rounds)
    case = f"40 bytes, 2 workers, sockets, beside {_MEGABYTES} MB of each"
    return [
        Row("urgent exchange beside a sum", case, Runs((values["beside_sum"],), "s")),
        Row("urgent exchange beside a gather", case, Runs((values["beside_gather"],), "s")),
        Row(
            "urgent exchange beside a gather, against a sum",
            case,
            Runs((values["ratio"],), "×"),
            ("<=", 2),
        ),
        Row("the sum itself", case, Runs((values["sum"],), "s")),
        Row("the gather itself", case, Runs((values["gather"],), "s")),
    ]


def tls(rounds):
    """What it costs to encrypt, in all processes together."""
    values = _measure("tls", 64, rounds)
    case = "2 workers, 1 server, 64 MB"
    return [
        Row("CPU time for a GB, in clear", case, Runs((values["plain"],), "s")),
        Row("CPU time for a GB, TLS", case, Runs((values["tls"],), "s")),
        Row(
            "CPU time for a GB, TLS against clear", case, Runs((values["ratio"],), "×"), ("<=", 1.4)
        ),
    ]


def strangers(rounds):
    """As many connections that say nothing as the server has descriptors for, and more."""
    count = 300
    values = _measure("strangers", count, rounds)
    case = f"{count} silent strangers, a server with {count // 2} descriptors"
    return [
        Row("a step while strangers are there", case, Runs((values["besieged"],), "s")),
        Row("a step while they are not", case, Runs((values["quiet"],), "s")),
        Row(
            "a step with strangers, against without",
            case,
            Runs((values["ratio"],), "×"),
            ("<=", 1.1),
        ),
    ]


_PATIENCE = 120  # seconds, beyond those that are waited for
PARTS = {part.__name__: part for part in (step, end, wait, urgent, tls, strangers)}


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args(arguments)
    rows = []
    try:
        for name in given.only:
            rows += PARTS[name](given.rounds)
    except BenchmarkError as error:
        raise SystemExit(f"error: {error}") from None
    title = f"The engine at scale (load {os.getloadavg()[0]:.1f} after)"
    return 0 if report.publish("scale", title, rows) else 1


if __name__ == "__main__":
    sys.exit(main())
