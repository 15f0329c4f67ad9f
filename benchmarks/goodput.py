"""Goodput in an emulated cluster, as a fraction of the optimum t_opt.

Workers without TensorFlow exchange the gradients of a model again and again. All of them are
handed to the engine at once, those of the last layer first, as backpropagation has them; priorities
follow the forward order. With k = 0 servers the workers' processes host servers; they do so, too,
beside k additional server hosts (the paper's mixed mode).

    python -m benchmarks.goodput --workers 4 --servers 2 --model resnet50
    python -m benchmarks.goodput --model bert_large --during 0.12 --priorities learned

`--during` gives the tensors to the engine one after another, as backpropagation makes them, during
that fraction of t_opt.
"""

import argparse
import sys

from benchmarks import report
from benchmarks.cluster import EmulatedCluster, why_unavailable
from benchmarks.jobs import Job, settings_of
from benchmarks.measure import CpuMeter, Runs
from benchmarks.models import MODELS, optimal_seconds
from benchmarks.report import Row
from benchmarks.sessions import BenchmarkError
from benchmarks.wire import measure_wire

TARGETS = {"uniform": 0.95, "resnet50": 0.93, "vgg16": 0.93, "bert_large": 0.93}
_WORKERS_OF_THE_GOALS = 4  # see goals.py; with others a target only says what is good
MOST_BUSY = 0.85
_SLOWER = 0.5  # by how much the rate is lowered when the CPUs are the limit
_LEAST_GIGABITS = 0.1
# If other processes use more, a lower rate does not help.
_MOST_OF_OTHERS = 0.25


def measure(
    model,
    workers,
    servers,
    gigabits,
    rounds,
    warmups=3,
    settings=None,
    advance=None,
    priorities="forward",
    during=0.0,
):
    """Measures one model on one cluster.

    Args:
        priorities: see `programs.engine.prepare`.
        during: the fraction of t_opt in which the tensors come.

    Returns:
        A dict: seconds (`Runs`), wire, t_opt, tuning (what the links made of the job), busy (share
        of the CPUs), others (what other processes used of that), nic_shares (what each NIC carried
        over what it had to, sent and received, by host), most_loaded (what the most loaded NIC
        carried over what the formula says).
    """
    with EmulatedCluster(workers + servers, gigabits) as cluster:
        wire = measure_wire(cluster)
        best = optimal_seconds(workers, servers, model.bytes, wire.bytes_per_second)
        exchange = {"group": "model", "during": during * best, "timeout": 280}
        job = Job("benchmarks.programs.engine", workers, servers, True, cluster, settings=settings)
        with job:
            job.workers.call("join")
            job.workers.call("prepare", group="model", tensors=model.tensors, priorities=priorities)
            for _ in range(warmups):
                job.workers.call("exchange", **exchange)
            before, meter, spans = cluster.counters(), CpuMeter(job.pids), []
            for _ in range(rounds):
                spans.append(job.workers.call("exchange", **exchange))
                if advance:
                    advance()
            (busy, others), after = meter.shares(), cluster.counters()
            job.workers.call("check", group="model")
            tuning = job.tuning()
            loads = [counters["pushed_bytes"] for counters in job.finish()]
    seconds = [max(end for _, end in span) - min(begin for begin, _ in span) for span in spans]
    carried = [
        [(now - then) / rounds for now, then in zip(host_after, host_before)]
        for host_after, host_before in zip(after, before)
    ]
    due = _bytes_due(workers, model.bytes, loads)
    return {
        "seconds": Runs(tuple(seconds), "s"),
        "wire": wire,
        "t_opt": best,
        "tuning": tuning,
        "busy": busy,
        "others": others,
        "nic_shares": [[bytes / due[i] for bytes in both] for i, both in enumerate(carried)],
        "most_loaded": max(map(min, carried)) / (best * wire.bytes_per_second),
    }


def _bytes_due(workers, model_bytes, loads):
    """What each host's NIC has to send, and to receive, under the placement that was used.

    Args:
        loads: bytes pushed to each server, those in the workers' hosts first.
    """
    shares = [load / sum(loads) * model_bytes for load in loads]
    # A worker's host sends its gradients but for those that its own server sums, and that server's
    # replies to the others; a server's host sends all workers what it has summed.
    colocated = [model_bytes + (workers - 2) * share for share in shares[:workers]]
    return colocated + [workers * share for share in shares[workers:]]


def row_of(name, model, workers, servers, gigabits, rounds, **arguments):
    """Measures, at a lower rate if the CPUs were the limit; returns a `Row` and details."""
    tried = []
    while True:
        measured = measure(model, workers, servers, gigabits, rounds, **arguments)
        tried.append(
            f"{gigabits:g} Gbit/s: CPUs {measured['busy']:.0%} busy, "
            f"{measured['others']:.0%} by others"
        )
        slower = gigabits * _SLOWER
        neighbours = measured["others"] > _MOST_OF_OTHERS
        if measured["busy"] <= MOST_BUSY or neighbours or slower < _LEAST_GIGABITS:
            break
        gigabits = slower
    fractions = measured["seconds"].map(lambda s: measured["t_opt"] / s, "of t_opt")
    broken = []
    if measured["most_loaded"] < 1:
        broken.append("the NICs carried less than the formula says")
    if min(map(min, measured["nic_shares"])) < 1:
        broken.append("a NIC carried less than the placement says")
    if measured["busy"] > MOST_BUSY:
        who = "others used the CPUs" if neighbours else "the CPUs were the limit"
        broken.append(f"{who} ({measured['busy']:.0%} busy)")
    row = Row(
        figure="goodput / t_opt",
        case=f"{model.name}, n = {workers}, k = {servers}, {gigabits:g} Gbit/s",
        runs=fractions,
        target=(">=", TARGETS[name]),
        note=f"t_opt {measured['t_opt']:.3f} s; " + ", then ".join(tried),
        broken="; ".join(broken),
        goal=_goal(name) if workers == _WORKERS_OF_THE_GOALS else "",
    )
    details = {
        "model": name,
        "workers": workers,
        "servers": servers,
        "gigabits": gigabits,
        "seconds": measured["seconds"].as_json(),
        "t_opt": measured["t_opt"],
        "wire": str(measured["wire"]),
        "tuning": measured["tuning"],
        "busy": measured["busy"],
        "others": measured["others"],
        "nic_shares": measured["nic_shares"],
        "row": row.as_json(),
    }
    return row, details


def cases(workers, servers, names, gigabits, rounds, divisors=None, **arguments):
    """Measures all combinations, with these arguments of `measure`; returns rows and details."""
    rows, details = [], []
    divisors = divisors or {}
    with report.progress() as bar:
        for name in names:
            divisor = divisors.get(name, 1)
            model = MODELS[name]().scaled(divisor)
            for count in servers:
                label = f"{model.name}, n = {workers}, k = {count}"
                task = bar.add_task(label, total=rounds)
                row, detail = row_of(
                    name,
                    model,
                    workers,
                    count,
                    gigabits,
                    rounds,
                    **arguments,
                    advance=lambda task=task: bar.advance(task),
                )
                bar.remove_task(task)
                report.console.print(f"  {row.case}: {row.runs}  {row.broken}")
                rows.append(row)
                details.append(detail)
    return rows, details


def unavailable_rows(reason):
    """What stands in the tables where hosts cannot be emulated."""
    return [
        Row("goodput / t_opt", name, None, (">=", TARGETS[name]), reason, goal=_goal(name))
        for name in ("uniform", "resnet50")
    ]


def _goal(name):
    return "uniform" if name == "uniform" else "models"


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.goodput", description=__doc__)
    parser.add_argument("--workers", type=int, default=4, help="n, worker hosts")
    parser.add_argument(
        "--servers", type=int, nargs="+", default=[0, 2, 4], help="k, additional server hosts"
    )
    parser.add_argument("--model", nargs="+", choices=sorted(MODELS), default=list(MODELS))
    parser.add_argument("--gigabits", type=float, default=1.0, help="rate of each NIC, each way")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--divisor", type=int, default=1, help="divides the tensors, and so the parts, to save time"
    )
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="VARIABLE=VALUE", help="settings of all processes"
    )
    parser.add_argument(
        "--during", type=float, default=0.0, help="of t_opt, in which the tensors come"
    )
    parser.add_argument(
        "--priorities", choices=["forward", "none", "learned", "next step"], default="forward"
    )
    given = parser.parse_args(arguments)
    reason = why_unavailable()
    if reason:
        raise SystemExit(f"error: {reason}")
    settings = settings_of(given.set)
    divisors = dict.fromkeys(given.model, given.divisor)
    try:
        rows, details = cases(
            given.workers,
            given.servers,
            given.model,
            given.gigabits,
            given.rounds,
            divisors,
            settings=settings,
            priorities=given.priorities,
            during=given.during,
        )
    except BenchmarkError as error:
        raise SystemExit(f"error: {error}") from None
    passed = report.publish("goodput_alone", "Goodput", rows, {"cases": details})
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
