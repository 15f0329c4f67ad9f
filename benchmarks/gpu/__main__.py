"""Training steps on GPUs, against TensorFlow's strategies in the same run.

    python -m benchmarks.gpu one_host --models resnet50 bert-large
    python -m benchmarks.gpu four_hosts --models bert-large --rates none 25 10
    python -m benchmarks.gpu two_hosts --models vgg16 --rates 25

Hosts are emulated (see benchmarks/cluster.py): network namespaces with a GPU or two each, and
servers on further ones. Needs root and four GPUs; data and models are those of
examples/keras_synthetic_benchmark.py, in mixed_bfloat16. Every row is printed when it is measured
and written to the file that --json names.
"""

import argparse
import json
import pathlib
import sys

from benchmarks.cluster import EmulatedCluster
from benchmarks.gpu import competitors
from benchmarks.gpu.competitors import Steps
from benchmarks.models import optimal_seconds
from benchmarks.sessions import BenchmarkError
from benchmarks.wire import measure_wire

GPUS = 4
# What is to be reached.
EFFICIENCY = 0.94
FASTER_WITHOUT_LIMIT = {"bert-large": 2.0, "vgg16": 1.7}
FASTER_WITH_LIMIT = 1.5
WITHIN_BOUND = 1.15
# Headers and acknowledgements, beside what is sent twice when packets are dropped.
_WIRE_OVERHEAD = 1.10
_COUNTED_STEPS = 10


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
        row = {"what": what, "goal": goal, "reached": reached, **numbers}
        if runs is not None:
            row["value"] = runs if isinstance(runs, float) else runs.as_json()
        self._rows.append(row)
        if self._path:
            pathlib.Path(self._path).write_text(json.dumps(self._rows, indent=1))


def one_host(arguments, table):
    """All GPUs of a host: NCCL only."""
    for model in arguments.models:
        options = _options(arguments, model)
        alone = _measure_alone(arguments, table, model, options)
        with competitors.mirrored(options, GPUS) as training:
            mirrored = training.measure(arguments.duration)
            table.add(f"{model}, MirroredStrategy, {GPUS} GPUs", mirrored)
        with competitors.byteps(options, GPUS, servers=0) as training:
            step = training.measure(arguments.duration)
            what = f"{model}, BytePSStrategy, {GPUS} GPUs"
            reached = step.median <= mirrored.median
            table.add(what, step, goal="≤ MirroredStrategy", reached=reached)
            efficiency = alone.median / step.median
            goal = f"≥ {EFFICIENCY:.0%} of one GPU"
            table.add(f"{what}, efficiency", efficiency, "", goal, efficiency >= EFFICIENCY)
            _check_weights(training, what, table)


def four_hosts(arguments, table):
    """A GPU on each of four hosts, servers on four others, against MultiWorkerMirroredStrategy."""
    with EmulatedCluster(2 * GPUS, None) as cluster:
        wires = _measure_wires(cluster, arguments.rates, table)
        for model in arguments.models:
            options = _options(arguments, model)
            alone = _measure_alone(arguments, table, model, options)
            mirrored = {}
            with competitors.multi_worker(options, cluster, GPUS) as training:
                for rate in arguments.rates:
                    cluster.set_rate(rate)
                    mirrored[rate] = training.measure(arguments.duration)
                    what = f"{model}, MultiWorkerMirroredStrategy, {GPUS} hosts, {_shown(rate)}"
                    table.add(what, mirrored[rate])
            cluster.set_rate(None)
            with competitors.byteps(options, GPUS, GPUS, cluster) as training:
                for rate in arguments.rates:
                    cluster.set_rate(rate)
                    what = f"{model}, BytePSStrategy, {GPUS} hosts + {GPUS} servers, {_shown(rate)}"
                    step = _measure_byteps(training, arguments, table, what, alone, wires[rate])
                    _compare(table, what, model, rate, mirrored[rate].median / step.median)
                _check_weights(training, f"{model}, BytePSStrategy", table)
            cluster.set_rate(None)


def two_hosts(arguments, table):
    """Two GPUs on each of two hosts, servers on two others: what do their NICs carry?"""
    with EmulatedCluster(4, None) as cluster:
        wires = _measure_wires(cluster, arguments.rates, table)
        for model in arguments.models:
            options = _options(arguments, model)
            alone = _measure_alone(arguments, table, model, options)
            cluster.set_rate(None)
            with competitors.byteps(options, GPUS, 2, cluster, workers_per_host=2) as training:
                for rate in arguments.rates:
                    cluster.set_rate(rate)
                    what = f"{model}, BytePSStrategy, 2 hosts × 2 + 2 servers, {_shown(rate)}"
                    _measure_byteps(training, arguments, table, what, alone, wires[rate], hosts=2)
                    _count_bytes(training, cluster, table, what)
                _check_weights(training, f"{model}, BytePSStrategy", table)
            cluster.set_rate(None)


def _measure_alone(arguments, table, model, options):
    with competitors.alone(options) as training:
        step = training.measure(arguments.duration)
        table.add(f"{model}, one GPU, batch {training.batch}", step)
    return step


def _measure_byteps(training, arguments, table, what, alone, wire, hosts=GPUS):
    step = training.measure(arguments.duration)
    if wire is None:
        table.add(what, step)
        return step
    first = training.first_gradient()
    least = optimal_seconds(hosts, hosts, training.gradient_bytes, wire.both_ways)
    bound = max(alone.median / 1e3, first + least) * 1e3
    numbers = {"t_first": first, "t_opt": least, "compute": alone.median / 1e3, "bound_ms": bound}
    goal = f"≤ {WITHIN_BOUND} × {bound:.0f} ms (t_opt {least * 1e3:.0f})"
    table.add(what, step, "ms", goal, step.median <= WITHIN_BOUND * bound, **numbers)
    return step


def _compare(table, what, model, rate, faster):
    least = FASTER_WITH_LIMIT if rate else FASTER_WITHOUT_LIMIT.get(model)
    goal = f"≥ {least} × MultiWorkerMirroredStrategy" if least else None
    table.add(f"{what}, speedup", faster, "×", goal, faster >= least if least else None)


def _count_bytes(training, cluster, table, what):
    """Every host's NIC must carry each gradient once, each way."""
    before = cluster.counters()
    training.measure(Steps(0, _COUNTED_STEPS, 1))
    after = cluster.counters()
    for host in range(2):
        for way, name in enumerate(("sent", "received")):
            carried = (after[host][way] - before[host][way]) / _COUNTED_STEPS
            times = carried / training.gradient_bytes
            goal = f"1 to {_WIRE_OVERHEAD} (2 GPUs: 2 if each were on its own)"
            reached = 1.0 <= times <= _WIRE_OVERHEAD
            table.add(f"{what}, host {host} {name}", times, "× gradients", goal, reached)


def _check_weights(training, what, table):
    equal = training.weights_are_equal()
    table.add(f"{what}, weights", None, goal="equal on all, bit for bit", reached=equal)


def _measure_wires(cluster, rates, table):
    """The payload rate of TCP at each rate that is a limit."""
    wires = {None: None}
    for rate in rates:
        cluster.set_rate(rate)
        wire = measure_wire(cluster)
        gigabits = wire.both_ways * 8e-9
        table.add(f"TCP payload, {_shown(rate)}, both ways at once", gigabits, "Gbit/s")
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


def _shown(rate):
    return "no limit" if rate is None else f"{rate:g} Gbit/s"


def _rate(text):
    return None if text == "none" else float(text)


def main():
    scenarios = {"one_host": one_host, "four_hosts": four_hosts, "two_hosts": two_hosts}
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("scenario", choices=scenarios)
    parser.add_argument("--models", nargs="+", default=["bert-large"])
    parser.add_argument("--rates", nargs="+", type=_rate, default=[None, 25.0, 10.0])
    parser.add_argument("--batch", type=int, help="samples of each GPU; default: the example's")
    parser.add_argument("--float32", action="store_true", help="instead of mixed_bfloat16")
    parser.add_argument(
        "--dense", action="store_true", help="make gradients of embeddings dense, for all alike"
    )
    parser.add_argument("--cpu", action="store_true", help="no GPUs: tries the program itself")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="where to write the rows")
    arguments = parser.parse_args()
    arguments.duration = Steps(arguments.warmup, arguments.steps, arguments.rounds)
    table = Table(arguments.json)
    try:
        scenarios[arguments.scenario](arguments, table)
    except BenchmarkError as error:
        sys.exit(f"benchmarks.gpu: {error}")
    return 0 if table.reached else 1


if __name__ == "__main__":
    sys.exit(main())
