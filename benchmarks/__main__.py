"""Runs all benchmarks and sums them up: `make bench`, or `make bench-all` with --all.

python -m benchmarks --only loopback cost
"""

import argparse
import signal
import sys
import time

from benchmarks import (
    arrivals,
    chain,
    cluster_peers,
    compression,
    cost,
    goals,
    goodput,
    loopback,
    overlap,
    peers,
    plots,
    priority,
    report,
    slow_links,
    steps,
)
from benchmarks.cluster import why_unavailable
from benchmarks.sessions import ROOT, BenchmarkError

_ROUNDS = 5
_MODELS = ("uniform", "resnet50", "vgg16", "bert_large")
# So that all NICs together stay below 5 Gbit/s, by number of workers.
_ALL_GIGABITS = {2: 1.0, 8: 0.3}


def _goodput(everything):
    """n = 4; BERT-large with a quarter of its rows and parts, in `make bench-all` with all."""
    reason = why_unavailable()
    if reason:
        return goodput.unavailable_rows(reason), {"cases": []}
    divisors = {} if everything else {"bert_large": 4}
    rows, details = goodput.cases(4, [0, 2, 4], _MODELS, 1.0, _ROUNDS, divisors)
    if everything:
        for workers, gigabits in _ALL_GIGABITS.items():
            divisor = 4 if workers == 8 else 1
            more_rows, more_details = goodput.cases(
                workers,
                [0, workers // 2, workers],
                _MODELS,
                gigabits,
                _ROUNDS,
                dict.fromkeys(_MODELS, divisor),
            )
            rows += more_rows
            details += more_details
    return rows, {"cases": details}


def _loopback(everything):
    rows = loopback.run(2, 0, [64, 256], 15)
    rows += loopback.run(4, 0, [64, 256], _ROUNDS, latency=False, many=False)
    if everything:
        rows += loopback.run(2, 1, [64, 256], 9, many=False)
    return rows


_PARTS = {
    "goodput": ("Goodput in an emulated cluster", _goodput),
    "cluster_peers": (
        "Peers in an emulated cluster",
        lambda everything: cluster_peers.run(_ROUNDS),
    ),
    "compression": (
        "Compression in an emulated cluster",
        lambda everything: compression.run(_ROUNDS),
    ),
    "loopback": ("On one machine", _loopback),
    "chain": ("Chain of small exchanges", lambda everything: chain.run(9)),
    "cost": ("CPU time and memory", lambda everything: cost.run(["memory", "tcp"], _ROUNDS)),
    "priority": ("Priority", lambda everything: priority.run(_ROUNDS)),
    "steps": ("Training steps", lambda everything: steps.run([25, 100], _ROUNDS)),
    "overlap": ("Steps with overlap", lambda everything: overlap.run([0.5, 2, 1], _ROUNDS)),
    "arrivals": ("Exchange beside computation", lambda everything: arrivals.run()),
    "slow_links": (
        "Slow links and workers",
        lambda everything: slow_links.run(_ROUNDS if everything else 1),
    ),
}
# Parts that measure other libraries, too.
_WITH_PEERS = {"cluster_peers", "loopback", "steps"}


def _run_part(name, everything):
    title, function = _PARTS[name]
    report.console.rule(title)
    begin = time.monotonic()
    try:
        result = function(everything)
    except BenchmarkError as error:
        report.console.print(f"[red]{name} has failed:[/red] {error}", markup=True)
        report.forget(name)
        return False
    rows, details = result if isinstance(result, tuple) else (result, None)
    report.publish(name, title, rows, details)
    report.console.print(f"{name}: {time.monotonic() - begin:.0f} s")
    return True


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--all", action="store_true", help="n = 2 and 8 and whole models, too")
    parser.add_argument("--only", nargs="+", choices=sorted(_PARTS), default=list(_PARTS))
    parser.add_argument("--summary", action="store_true", help="only sum up what has been measured")
    given = parser.parse_args(arguments)
    # So that the emulated clusters are taken down then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    begin = time.monotonic()
    parts = [] if given.summary else given.only
    if _WITH_PEERS.intersection(parts):
        peers.prepare()
    ran = [_run_part(name, given.all) for name in parts]
    pictures = plots.draw_all()
    reached = goals.print_summary()
    path = goals.write_markdown(pictures)
    written = ", ".join(str(p.relative_to(ROOT)) for p in [path, *pictures])
    report.console.print(f"{time.monotonic() - begin:.0f} s; written: {written}")
    if not reached:
        report.console.print("not all goals are reached")
    # A goal that is missed is a result; a benchmark that cannot run is an error.
    return 0 if all(ran) else 1


if __name__ == "__main__":
    sys.exit(main())
