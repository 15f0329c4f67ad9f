"""Training steps on GPUs, against TensorFlow's strategies in the same run.

    python -m benchmarks.gpu one_host --models resnet50 bert-large
    python -m benchmarks.gpu hosts --models bert-large --rates none 25 10
    python -m benchmarks.gpu two_hosts --models vgg16 --rates 25

Hosts are emulated (see benchmarks/cluster.py): network namespaces with a GPU or two each, and
servers on further ones. Needs root and four GPUs; with fewer (`--gpus 2`) hosts share them, also
while a worker without the others is measured. Data and models are those of
examples/keras_synthetic_benchmark.py, in mixed_bfloat16. Every row is printed when it is measured
and written to the file that --json names.
"""

import argparse
import contextlib
import json
import pathlib
import re
import sys

from benchmarks.cluster import EmulatedCluster, parsed_rate, shown_rate
from benchmarks.gpu import competitors
from benchmarks.gpu.competitors import Steps
from benchmarks.jobs import settings_of
from benchmarks.measure import CpuMeter
from benchmarks.models import optimal_seconds
from benchmarks.sessions import BenchmarkError
from benchmarks.wire import measure_wire

# What is to be reached; in comparison with MultiWorkerMirroredStrategy on so many hosts.
_HOSTS = 4
EFFICIENCY = 0.94
FASTER_WITHOUT_LIMIT = {"bert-large": 2.0, "vgg16": 1.7}
FASTER_WITH_LIMIT = 1.5
WITHIN_BOUND = 1.15
# Headers and acknowledgements, beside what is sent twice when packets are dropped.
_WIRE_OVERHEAD = 1.10
_STEPS_INSIDE = 4


class Table:
    """The rows, and whether all goals were reached."""

    def __init__(self, path):
        self._path = path
        self._rows = []
        self.reached = True

    def add(self, what, runs=None, unit="ms", goal=None, reached=None, **numbers):
        """Prints and keeps a row: `runs` is a `Runs`, a number or None."""
        shown = f"{runs:.3f} {unit}" if isinstance(runs, float) else str(runs or "")
        verdict = "" if reached is None else ("reached" if reached else "NOT REACHED")
        print(f"{what:<66} {shown:<34} {goal or '':<42} {verdict}", flush=True)
        self.reached = self.reached and reached is not False
        row = {"goal": goal, "reached": reached, **numbers}
        if runs is not None:
            row["value"] = runs if isinstance(runs, float) else runs.as_json()
        self.keep(what, **row)

    def keep(self, what, **numbers):
        """Keeps a row without printing it."""
        self._rows.append({"what": what, **numbers})
        if self._path:
            pathlib.Path(self._path).write_text(json.dumps(self._rows, indent=1))

    def note(self, text):
        """Prints what explains a row."""
        print(f"    {text}", flush=True)


def one_host(arguments, table):
    """All GPUs of a host: NCCL only."""
    gpus = arguments.gpus
    for model in arguments.models:
        options = _options(arguments, model)
        with contextlib.ExitStack() as stack:
            enter = stack.enter_context
            alone = enter(competitors.alone(options))
            mirrored = enter(competitors.mirrored(options, gpus))
            training = enter(competitors.byteps(options, gpus, gpus, servers=0))
            competitors.join(alone, mirrored, training)
            single = _measure_alone(alone, arguments, table, model)
            # What waiting costs by itself: TensorFlow prepares no other step meanwhile.
            waiting = alone.measure(Steps(1, 1, arguments.duration.total))
            table.add(f"{model}, one GPU, waiting for each step", waiting)
            theirs = mirrored.measure(arguments.duration)
            table.add(f"{model}, MirroredStrategy, {gpus} GPUs", theirs)
            step = training.measure(arguments.duration)
            what = f"{model}, BytePSStrategy, {gpus} GPUs"
            reached = step.median <= theirs.median
            table.add(what, step, goal="≤ MirroredStrategy", reached=reached)
            efficiency = single.median / step.median
            goal = f"≥ {EFFICIENCY:.0%} of one GPU"
            table.add(f"{what}, efficiency", efficiency, "", goal, efficiency >= EFFICIENCY)
            _look_inside(training, arguments, table, what)
            _check_weights(training, what, table)


def hosts(arguments, table):
    """A GPU on each of some hosts, servers on as many others, against
    MultiWorkerMirroredStrategy."""
    count, gpus = arguments.hosts, arguments.gpus
    with EmulatedCluster(2 * count, None) as cluster:
        wires = _measure_wires(cluster, arguments.rates, table)
        for model in arguments.models:
            options = _options(arguments, model)
            with contextlib.ExitStack() as stack:
                enter = stack.enter_context
                alone = enter(competitors.alone(options, count, gpus))
                # NCCL refuses processes that share a GPU.
                peers = count <= gpus
                theirs = enter(competitors.multi_worker(options, cluster, count)) if peers else None
                job = competitors.byteps(
                    options, gpus, count, count, cluster, settings=arguments.set
                )
                training = enter(job)
                competitors.join(alone, training, *([theirs] if peers else []))
                compute = _measure_alone(alone, arguments, table, model)
                for rate in arguments.rates:
                    cluster.set_rate(rate)
                    if peers:
                        what = f"{model}, MultiWorkerMirroredStrategy, {count} hosts"
                        other, _ = _measure_counted(
                            theirs, arguments, table, f"{what}, {shown_rate(rate)}", cluster
                        )
                    what = f"{model}, BytePSStrategy, {count} hosts + {count} servers"
                    what = f"{what}, {shown_rate(rate)}"
                    step = _measure_byteps(
                        training, arguments, table, what, cluster, compute, wires[rate], count
                    )
                    if peers:
                        faster = other.median / step.median
                        _compare(table, what, model, rate, faster, count == _HOSTS)
                _check_weights(training, f"{model}, BytePSStrategy", table)
                cluster.set_rate(None)


def two_hosts(arguments, table):
    """Two GPUs on each of two hosts, servers on two others: what do their NICs carry?"""
    with EmulatedCluster(4, None) as cluster:
        wires = _measure_wires(cluster, arguments.rates, table)
        for model in arguments.models:
            options = _options(arguments, model)
            with contextlib.ExitStack() as stack:
                alone = stack.enter_context(competitors.alone(options, 4, arguments.gpus))
                job = competitors.byteps(
                    options, arguments.gpus, 4, 2, cluster, 2, settings=arguments.set
                )
                training = stack.enter_context(job)
                competitors.join(alone, training)
                compute = _measure_alone(alone, arguments, table, model)
                for rate in arguments.rates:
                    cluster.set_rate(rate)
                    what = f"{model}, BytePSStrategy, 2 hosts × 2 + 2 servers, {shown_rate(rate)}"
                    _measure_byteps(
                        training, arguments, table, what, cluster, compute, wires[rate], 2
                    )
                _check_weights(training, f"{model}, BytePSStrategy", table)
                cluster.set_rate(None)


def _measure_alone(training, arguments, table, model):
    step = training.measure(arguments.duration)
    table.add(f"{model}, a worker without the others, batch {training.batch}", step)
    return step


def _measure_counted(training, arguments, table, what, cluster):
    """Measures steps, and how often each NIC carries the gradients' bytes meanwhile."""
    duration = arguments.duration
    training.measure(Steps(duration.warmup, 1, 1))
    before, segments, meter = cluster.counters(), cluster.retransmitted(), CpuMeter([])
    step = training.measure(Steps(0, duration.steps, duration.rounds))
    after, (busy, _) = cluster.counters(), meter.shares()
    due = duration.steps * duration.rounds * training.gradient_bytes
    carried = [
        [(now - then) / due for now, then in zip(host_after, host_before)]
        for host_after, host_before in zip(after, before)
    ]
    table.add(what, step, carried=carried, cpus_busy=busy)
    shown = ", ".join(f"{sent:.3f} {received:.3f}" for sent, received in carried)
    table.note(f"each NIC sent, received, × gradients: {shown}; CPUs {busy:.0%} busy")
    sent, again = (now - then for now, then in zip(cluster.retransmitted(), segments))
    table.note(f"{again / sent:.2%} of all segments were sent again")
    return step, carried


def _measure_byteps(training, arguments, table, what, cluster, compute, wire, hosts):
    step, carried = _measure_counted(training, arguments, table, what, cluster)
    for way, name in enumerate(("sent", "received")):
        times = [host[way] for host in carried[:hosts]]
        reached = 1.0 <= min(times) and max(times) <= _WIRE_OVERHEAD
        goal = f"1 to {_WIRE_OVERHEAD}, however many GPUs"
        table.add(f"{what}, a worker's NIC {name}", max(times), "× gradients", goal, reached)
    inside = _look_inside(training, arguments, table, what)
    if wire is None:
        return step
    first = inside["t_first"]
    least = optimal_seconds(hosts, hosts, training.gradient_bytes, wire.both_ways)
    bound = max(compute.median / 1e3, first + least) * 1e3
    table.add(
        f"{what}, of the bound",
        step.median / bound,
        "",
        f"≤ {WITHIN_BOUND} × {bound:.0f} ms (t_opt {least * 1e3:.0f}, t_first {first * 1e3:.0f})",
        step.median <= WITHIN_BOUND * bound,
        t_first=first,
        t_opt=least,
        compute=compute.median / 1e3,
        bound_ms=bound,
    )
    return step


def _look_inside(training, arguments, table, what):
    """Where a step's time goes; printed, and kept with the rows."""
    folder = None
    if arguments.timelines:
        folder = f"{arguments.timelines}/{re.sub(r'[^A-Za-z0-9]+', '-', what)}"
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        folder = str(pathlib.Path(folder).resolve())
    inside = training.look_inside(_STEPS_INSIDE, folder)
    ends = [f"{n} {first:.0f}–{inside['last'][n]:.0f}" for n, first in inside["first"].items()]
    table.note("first and last end of each stage in a step, ms: " + ", ".join(ends))
    stages = [f"{name} {mean:.1f}" for name, mean in inside["stages"].items()]
    table.note("a part's mean time in each stage, ms: " + ", ".join(stages))
    table.note(f"credit {inside['credit_bytes'] / 1e6:.2f} MB {training.tuning()}")
    table.keep(f"{what}, inside", **inside)
    return inside


def _compare(table, what, model, rate, faster, has_goal):
    least = FASTER_WITH_LIMIT if rate else FASTER_WITHOUT_LIMIT.get(model)
    least = least if has_goal else None
    goal = f"≥ {least} × MultiWorkerMirroredStrategy" if least else None
    table.add(f"{what}, speedup", faster, "×", goal, faster >= least if least else None)


def _check_weights(training, what, table):
    equal = training.weights_are_equal()
    table.add(f"{what}, weights", None, goal="equal on all, bit for bit", reached=equal)


def _measure_wires(cluster, rates, table):
    """The payload rate of TCP at each rate that is a limit."""
    wires = {None: None}
    for rate in rates:
        cluster.set_rate(rate)
        wire = measure_wire(cluster, connections=competitors.WIRE_CONNECTIONS)
        gigabits = wire.both_ways * 8e-9
        table.add(f"TCP payload, {shown_rate(rate)}, both ways at once", gigabits, "Gbit/s")
        wires[rate] = wire if rate else None
    cluster.set_rate(None)
    return wires


def _options(arguments, model):
    return {
        "model": model,
        "mixed": not arguments.float32,
        "batch": arguments.batch,
        "dense": arguments.dense,
        "cpu": arguments.cpu,
    }


def main():
    scenarios = {"one_host": one_host, "hosts": hosts, "two_hosts": two_hosts}
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("scenario", choices=scenarios)
    parser.add_argument("--models", nargs="+", default=["bert-large"])
    parser.add_argument("--rates", nargs="+", type=parsed_rate, default=[None, 25.0, 10.0])
    parser.add_argument("--gpus", type=int, default=4, help="of this machine")
    parser.add_argument("--hosts", type=int, default=_HOSTS, help="of the scenario `hosts`")
    parser.add_argument("--batch", type=int, help="samples of each GPU; default: the example's")
    parser.add_argument("--float32", action="store_true", help="instead of mixed_bfloat16")
    parser.add_argument(
        "--dense", action="store_true", help="make gradients of embeddings dense, for all alike"
    )
    parser.add_argument("--cpu", action="store_true", help="no GPUs: tries the program itself")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="VARIABLE=VALUE", help="settings of BytePSStrategy"
    )
    parser.add_argument("--timelines", help="folder for the timelines of BytePSStrategy")
    parser.add_argument("--json", help="where to write the rows")
    arguments = parser.parse_args()
    arguments.duration = Steps(arguments.warmup, arguments.steps, arguments.rounds)
    arguments.set = settings_of(arguments.set)
    table = Table(arguments.json)
    try:
        scenarios[arguments.scenario](arguments, table)
    except BenchmarkError as error:
        sys.exit(f"benchmarks.gpu: {error}")
    return 0 if table.reached else 1


if __name__ == "__main__":
    sys.exit(main())
