"""N GPUs against one GPU alone, both with Keras's defaults: XLA compiles the step.

    python -m benchmarks.gpu.compiled bert-large resnet50 gpt2               # on one GPU
    python -m benchmarks.gpu.compiled bert-large resnet50 gpt2 --gpus 2
    python -m benchmarks.gpu.compiled bert-large resnet50 --gpus 2 --strategies none mirrored jax
    python -m benchmarks.gpu.compiled resnet50 gpt2 --strategies none byteps jax byteps-jax
    python -m benchmarks.gpu.compiled gpt2 --gpus 2 --strategies none-jax jax byteps-jax --profile
    python -m benchmarks.gpu.compiled resnet50 --gpus 2 --rates none 25 10 --compressions none bf16
    python -m benchmarks.gpu.compiled resnet50 --gpus 4 --gpus-per-host 2 --rates 25

`Model.fit`, mixed_bfloat16, batches from the host. With one GPU `byteps` is a job of one worker,
whose exchanges are all in the program and move nothing. `mirrored` is MirroredStrategy, which Keras
does not compile; `jax` is `keras.distribution.DataParallel` with KERAS_BACKEND=jax, in one process,
`none-jax` one GPU with that backend, and `byteps-jax` is BytePSStrategy there.
The programs of a model compile side by side, for about two minutes; then they are measured one
after the other. (Those of several models at once do not fit in a GPU's memory.) Each --with gives
one more row of BytePSStrategy (across steps with --cross-step; one for each of --compressions),
with settings such as --with NCCL_MAX_CTAS=8. With --profile each process trains some more steps
under the backend's profiler, which takes CUDA graphs apart, so that its times are longer;
--with XLA_FLAGS=--xla_enable_command_buffers_during_profiling=true keeps them. --profiles
names a folder for what `python -m benchmarks.gpu.gaps` reads. Each row is printed when it is
measured, and --json names a file for all.

With --rates each GPU of all but `none`, `none-jax` and `mirrored` is on an emulated host of its
own, or so many as --gpus-per-host says (benchmarks/cluster.py; needs root), and BytePSStrategy has
as many hosts with servers. Their NICs carry so many Gbit/s each way. `jax` has a process on each
host then, which reduce by NCCL over sockets.
--cross-step adds rows of BytePSStrategy(cross_step=True), --flash-attention those with
flash_attention=True.
"""

import argparse
import contextlib
import itertools
import json
import pathlib
import re
import statistics
import sys
import tempfile

from benchmarks.cluster import EmulatedCluster, parsed_rate, shown_rate
from benchmarks.gpu.competitors import (
    GPU_SETTINGS,
    NCCL_BETWEEN_HOSTS,
    WIRE_CONNECTIONS,
    gpu_environment,
)
from benchmarks.jobs import Job, settings_of
from benchmarks.measure import shown
from benchmarks.models import optimal_seconds
from benchmarks.sessions import BenchmarkError, Session
from benchmarks.wire import measure_wire

_PROGRAM = "benchmarks.programs.gpu_fit"
_JOIN_SECONDS = 400
_MEASURE_SECONDS = 300
_JAX_PORT = 29441
_OURS = ("byteps", "byteps-jax")
_ALONE = ("none", "none-jax")
_JAX_SETTINGS = {"KERAS_BACKEND": "jax", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
_SENT_SHARE = {None: 1, "bf16": 0.5, "fp16": 0.5}  # of the bytes of float32, both ways


@contextlib.contextmanager
def _processes(strategy, options, settings, cluster):
    """The `Session` of a strategy's processes, and how many GPUs each of them sees."""
    gpus, per_host = options.gpus, options.gpus_per_host
    if strategy == "byteps-jax":
        settings = {**_JAX_SETTINGS, **settings}
    if strategy in _OURS and gpus > 1:
        own = lambda rank: {**GPU_SETTINGS, **settings, "CUDA_VISIBLE_DEVICES": str(rank)}  # noqa: E731
        timeout = {"BYTEPS_RENDEZVOUS_TIMEOUT": str(_JOIN_SECONDS)}
        with Job(
            _PROGRAM,
            gpus,
            gpus // per_host if cluster else 0,
            cluster=cluster,
            settings=timeout,
            workers_per_host=per_host,
            worker_settings=own,
        ) as job:
            yield job.workers, 1
        return
    namespaces = None
    if strategy == "jax" and cluster:
        seen, namespaces = per_host, cluster.namespaces[: gpus // per_host]
        environments = _jax_environments(gpus // per_host, per_host, cluster)
    elif strategy == "jax":
        seen, environments = gpus, [_jax_environment(_visible(range(gpus)))]
    else:
        seen = gpus if strategy == "mirrored" else 1
        if strategy == "none-jax":
            settings = {**_JAX_SETTINGS, **settings}
        environments = [gpu_environment(_visible(range(seen)), **settings)]
    with tempfile.TemporaryDirectory(prefix="byteps_bench_") as folder:
        session = Session(_PROGRAM, environments, pathlib.Path(folder), namespaces, label=strategy)
        with session:
            yield session, seen


def _as_file_name(name):
    return re.sub(r"\W+", "_", name)


def _visible(gpus):
    return ",".join(map(str, gpus))


def _jax_environment(visible, **variables):
    return gpu_environment(visible, **_JAX_SETTINGS, **variables)


def _jax_environments(processes, gpus, cluster):
    """Those of processes that join each other, as benchmarks.programs.gpu_fit reads them, with so
    many GPUs each."""
    shared = {
        **NCCL_BETWEEN_HOSTS,
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": f"{cluster.addresses[0]}:{_JAX_PORT}",
        "KERAS_DISTRIBUTION_NUM_PROCESSES": str(processes),
    }
    return [
        _jax_environment(
            _visible(range(rank * gpus, (rank + 1) * gpus)),
            KERAS_DISTRIBUTION_PROCESS_ID=str(rank),
            **shared,
        )
        for rank in range(processes)
    ]


class _Training:
    """A strategy's processes with a model."""

    def __init__(self, session, name, strategy, **for_all):
        self.name = name
        self.strategy = strategy
        self._session = session
        for_all["strategy"] = strategy
        self._answer = session.begin("join", _JOIN_SECONDS, **for_all)

    def wait(self):
        """Waits until the step is compiled."""
        self.about = self._answer()[0]

    def measure(self, steps, rounds, with_profile, profiles=None):
        """A row of results. `profiles`: a folder for what the profiler writes, or None."""
        answers = self._session.call("measure", _MEASURE_SECONDS, steps=steps, rounds=rounds)
        # A step lasts until its slowest process has done it.
        times = [max(all_of_round) for all_of_round in zip(*(a[0] for a in answers), strict=True)]
        row = {**self.about, "milliseconds": times, "call_ms": [a[1] for a in answers]}
        row["whole_ms"] = max(a[2] for a in answers)
        row["weights_equal"] = len(set(self._session.call("weights", _MEASURE_SECONDS))) == 1
        if with_profile and self.strategy != "mirrored":
            folder = profiles and f"{profiles}/{_as_file_name(self.name)}"
            row["profile"] = self._session.call("profile", _MEASURE_SECONDS, folder=folder)
        return row

    def record(self, folder=None):
        """Records some steps, into a folder if one is given; milliseconds to the first gradient."""
        where = None if folder is None else f"{folder}/"
        return statistics.median(self._session.call("record", _MEASURE_SECONDS, folder=where))

    def leave(self):
        """The processes are not needed any more."""
        self._session.call("leave", _MEASURE_SECONDS)


def _report(name, row, alone):
    """Prints a row. `alone`: milliseconds of a step of one GPU without the others, or None."""
    times = row["milliseconds"]
    median = statistics.median(times)
    replicas = row["replicas"]
    line = f"{name}, {replicas} GPU{'s' if replicas > 1 else ''} with batch {row['batch']}"
    line += f"{'' if row['compiled'] else ', not compiled'}: {median:.2f} ms a step"
    line += f" ({min(times):.2f} to {max(times):.2f})"
    if alone is not None:
        line += f", {alone / median:.1%} of one GPU alone"
    if not row["weights_equal"]:
        line += "; WEIGHTS DIFFER"
    print(line, flush=True)
    calls = list(itertools.chain(*row["call_ms"]))
    call = f"the host is free after {shown(statistics.median(calls))} ms; " if calls else ""
    print(
        f"    {row['whole_ms']:.2f} ms a step of the whole fit; {call}"
        f"peak memory {row['memory'] / 1e6:.0f} MB, gradients {row['gradients'] / 1e6:.0f} MB",
        flush=True,
    )
    for rank, profile in enumerate(row.get("profile", ())):
        print(
            f"    profile of process {rank}: GPU busy {profile['busy']:.1f} ms with "
            f"{profile['kernels']:.0f} kernels and copies, NCCL {profile['nccl']:.1f} ms, host "
            f"{profile['program_ms']:.1f} ms in the program, {profile['graphs']:.0f} graphs, "
            f"{profile['calls']:.0f} calls of ours ({profile['calls_ms']:.1f} ms)",
            flush=True,
        )


def _made_with(strategy, options):
    """What a BytePSStrategy is made with, a row for each."""
    rows = [{}]
    if options.cross_step:
        rows.append({"cross_step": True})
    if options.flash_attention and strategy == "byteps":
        rows += [{**chosen, "flash_attention": True} for chosen in rows]
    return rows


def _variants(options):
    """The strategy of each row, what it is made with, and settings."""
    for strategy in options.strategies:
        if strategy not in _OURS:
            yield strategy, {}, ()
    compressions = [
        {} if each == "none" else {"compression": each} for each in options.compressions
    ]
    ours = [strategy for strategy in options.strategies if strategy in _OURS] or ["byteps"]
    for strategy in ours:
        rows = _made_with(strategy, options)
        for chosen, compression in itertools.product(rows, compressions):
            if strategy in options.strategies or chosen:
                yield strategy, {**compression, **chosen}, ()
    for strategy, settings in itertools.product(ours, options.variants):
        for compression in compressions:
            yield strategy, {**compression, **_made_with(strategy, options)[-1]}, settings


def _start(model, options, cluster, stack):
    """The `_Training`s of a model. Each waits until it is compiled."""
    trainings = []
    for strategy, chosen, settings in _variants(options):
        processes = _processes(strategy, options, settings_of(settings), cluster)
        session, seen = stack.enter_context(processes)
        shown_choices = [name if value is True else value for name, value in chosen.items()]
        name = ", ".join([model, strategy, *settings, *shown_choices])
        for_all = {"model": model, "gpus": seen, "cpu": options.cpu, **chosen}
        trainings.append(_Training(session, name, strategy, **for_all))
    for training in trainings:
        training.wait()
        print(f"{training.name}: compiled", file=sys.stderr, flush=True)
    return trainings


def _measure(model, options, cluster):
    """The rows of a model, by name; prints each."""
    rows = {}
    with contextlib.ExitStack() as stack:
        alone = {}  # milliseconds of a step, by whether JAX is the backend
        for training in _start(model, options, cluster, stack):
            in_cluster = cluster and training.strategy in (*_OURS, "jax")
            for rate in options.rates if in_cluster else [None]:
                name = training.name
                if in_cluster:
                    cluster.set_rate(rate)
                    name = f"{name}, {shown_rate(rate)}"
                with_profile = options.profile or options.profiles
                row = training.measure(
                    options.steps, options.rounds, with_profile, options.profiles
                )
                backend = "jax" in training.strategy
                if training.strategy in _ALONE:
                    alone[backend] = statistics.median(row["milliseconds"])
                _report(name, row, alone.get(backend))
                rows[name] = row
                if training.strategy not in _OURS:  # JAX sends bfloat16 as it likes
                    continue
                if options.timelines:
                    folder = pathlib.Path(options.timelines) / _as_file_name(name)
                    row["first_ms"] = training.record(folder)
                elif rate:
                    row["first_ms"] = training.record()
                if rate and row["compression"] in _SENT_SHARE:
                    _report_bound(row, options, cluster, alone.get(backend))
            training.leave()
    return rows


def _report_bound(row, options, cluster, alone):
    """Prints how much longer a step takes than it has to, since it sends what it has computed."""
    wire = measure_wire(cluster, connections=WIRE_CONNECTIONS)
    sent = row["gradients"] * _SENT_SHARE[row["compression"]]
    hosts = options.gpus // options.gpus_per_host
    least = optimal_seconds(hosts, hosts, sent, wire.both_ways) * 1e3
    first = 0 if row["cross_step"] else row["first_ms"]
    bound = max(alone or 0, first + least)
    until = f"the first gradient ({first:.1f} ms) and " if first else ""
    print(
        f"    {statistics.median(row['milliseconds']) / bound:.2f} × the longer of computing, and "
        f"of {until}sending ({least:.1f} ms at {wire.both_ways * 8e-9:.2f} Gbit/s of payload)",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.compiled",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="+", help="of examples/keras_synthetic_benchmark.py")
    parser.add_argument("--gpus", type=int, default=1, help="of this machine")
    parser.add_argument("--gpus-per-host", type=int, default=1, help="of emulated hosts")
    parser.add_argument(
        "--strategies",
        nargs="+",
        choices=[*_ALONE, "mirrored", "jax", *_OURS],
        default=["none", "byteps"],
    )
    parser.add_argument(
        "--with", nargs="+", action="append", default=[], dest="variants", metavar="NAME=VALUE"
    )
    parser.add_argument(
        "--rates", nargs="+", type=parsed_rate, help="Gbit/s of emulated hosts, or none"
    )
    parser.add_argument(
        "--compressions", nargs="+", default=["none"], help="of byteps, a row for each"
    )
    parser.add_argument(
        "--cross-step", action="store_true", help="rows of ours that overlap the next step, too"
    )
    parser.add_argument(
        "--flash-attention", action="store_true", help="rows of byteps with cuDNN's attention, too"
    )
    parser.add_argument("--steps", type=int, default=20, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="says where a step of byteps goes")
    parser.add_argument("--profiles", help="a folder for the profiles of --profile")
    parser.add_argument("--timelines", help="a folder for a timeline of some steps of each row")
    parser.add_argument("--cpu", action="store_true", help="no GPUs: tries the program itself")
    parser.add_argument("--json", help="where to write the rows")
    options = parser.parse_args()
    if options.gpus % options.gpus_per_host or (options.gpus_per_host > 1 and not options.rates):
        parser.error("--gpus-per-host must divide --gpus, and needs --rates")
    rows = {}
    try:
        with contextlib.ExitStack() as stack:
            hosts = 2 * options.gpus // options.gpus_per_host  # workers' and servers'
            cluster = stack.enter_context(EmulatedCluster(hosts, None)) if options.rates else None
            for model in options.models:
                rows.update(_measure(model, options, cluster))
                if options.json:
                    pathlib.Path(options.json).write_text(json.dumps(rows, indent=1))
    except BenchmarkError as error:
        sys.exit(f"benchmarks.gpu.compiled: {error}")


if __name__ == "__main__":
    main()
