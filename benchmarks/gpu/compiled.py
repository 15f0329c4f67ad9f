"""N GPUs against one GPU alone, both with Keras's defaults: XLA compiles the step.

    python -m benchmarks.gpu.compiled bert-large resnet50 gpt2               # on one GPU
    python -m benchmarks.gpu.compiled bert-large resnet50 gpt2 --gpus 2
    python -m benchmarks.gpu.compiled bert-large resnet50 --gpus 2 --strategies none mirrored jax

`Model.fit`, mixed_bfloat16, batches from the host. With one GPU `byteps` is a job of one worker,
whose exchanges are all in the program and move nothing. `mirrored` is MirroredStrategy, which Keras
does not compile; `jax` is `keras.distribution.DataParallel` with KERAS_BACKEND=jax, in one process.
The programs of a model compile side by side, for about two minutes; then they are measured one
after the other. (Those of several models at once do not fit in a GPU's memory.) Each --with gives
one more row of `byteps`, with settings such as --with NCCL_MAX_CTAS=8. With --profile
`byteps` trains some more steps under TensorFlow's profiler, which takes CUDA graphs apart, so that
its times are longer. Each row is printed when it is measured, and --json names a file for all.
"""

import argparse
import contextlib
import itertools
import json
import pathlib
import statistics
import sys
import tempfile

from benchmarks.gpu.competitors import GPU_SETTINGS, gpu_environment
from benchmarks.jobs import Job, settings_of
from benchmarks.measure import shown
from benchmarks.sessions import BenchmarkError, Session

_PROGRAM = "benchmarks.programs.gpu_fit"
_JOIN_SECONDS = 400
_MEASURE_SECONDS = 120


@contextlib.contextmanager
def _processes(strategy, gpus, settings):
    """The `Session` of a strategy's processes, and how many GPUs each of them sees."""
    if strategy == "byteps" and gpus > 1:
        own = lambda rank: {**GPU_SETTINGS, **settings, "CUDA_VISIBLE_DEVICES": str(rank)}  # noqa: E731
        patience = {"BYTEPS_RENDEZVOUS_TIMEOUT": str(_JOIN_SECONDS)}
        with Job(_PROGRAM, gpus, servers=0, settings=patience, worker_settings=own) as job:
            yield job.workers, 1
        return
    seen = 1 if strategy in ("none", "byteps") else gpus
    variables = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **settings}
    if strategy == "jax":
        variables["KERAS_BACKEND"] = "jax"
    visible = ",".join(str(number) for number in range(seen))
    with tempfile.TemporaryDirectory(prefix="byteps_bench_") as folder:
        environments = [gpu_environment(visible, **variables)]
        with Session(_PROGRAM, environments, pathlib.Path(folder), label=strategy) as session:
            yield session, seen


class _Training:
    """A strategy's processes with a model."""

    def __init__(self, session, name, strategy, model, gpus, cpu):
        self.name = name
        self.strategy = strategy
        self._session = session
        for_all = {"strategy": strategy, "model": model, "gpus": gpus, "cpu": cpu}
        self._answer = session.begin("join", _JOIN_SECONDS, **for_all)

    def wait(self):
        """Waits until the step is compiled."""
        self.about = self._answer()[0]

    def measure(self, steps, rounds, with_profile):
        """A row of results; the processes are not needed any more."""
        answers = self._session.call("measure", _MEASURE_SECONDS, steps=steps, rounds=rounds)
        # A step lasts until its slowest process has done it.
        times = [max(all_of_round) for all_of_round in zip(*(a[0] for a in answers), strict=True)]
        row = {**self.about, "milliseconds": times, "call_ms": [a[1] for a in answers]}
        row["weights_equal"] = len(set(self._session.call("weights", _MEASURE_SECONDS))) == 1
        if with_profile and self.strategy == "byteps":
            row["profile"] = self._session.call("profile", _MEASURE_SECONDS)
        self._session.call("leave", _MEASURE_SECONDS)
        return row


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
    call = statistics.median(itertools.chain(*row["call_ms"]))
    print(
        f"    the host is free after {shown(call)} ms; peak memory {row['memory'] / 1e6:.0f} MB, "
        f"gradients {row['gradients'] / 1e6:.0f} MB",
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


def _measure(model, options):
    """The rows of a model, by name; prints each."""
    rows = {}
    with contextlib.ExitStack() as stack:
        trainings = []
        variants = [(strategy, ()) for strategy in options.strategies]
        variants += [("byteps", settings) for settings in options.variants]
        for strategy, settings in variants:
            set_so = settings_of(settings)
            session, seen = stack.enter_context(_processes(strategy, options.gpus, set_so))
            name = ", ".join([model, strategy, *settings])
            trainings.append(_Training(session, name, strategy, model, seen, options.cpu))
        for training in trainings:
            training.wait()
            print(f"{training.name}: compiled", file=sys.stderr, flush=True)
        alone = None
        for training in trainings:
            row = training.measure(options.steps, options.rounds, options.profile)
            if training.strategy == "none":
                alone = statistics.median(row["milliseconds"])
            _report(training.name, row, alone)
            rows[training.name] = row
    return rows


def main():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.compiled",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="+", help="of examples/keras_synthetic_benchmark.py")
    parser.add_argument("--gpus", type=int, default=1, help="of this machine")
    parser.add_argument(
        "--strategies",
        nargs="+",
        choices=["none", "byteps", "mirrored", "jax"],
        default=["none", "byteps"],
    )
    parser.add_argument(
        "--with", nargs="+", action="append", default=[], dest="variants", metavar="NAME=VALUE"
    )
    parser.add_argument("--steps", type=int, default=20, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="says where a step of byteps goes")
    parser.add_argument("--cpu", action="store_true", help="no GPUs: tries the program itself")
    parser.add_argument("--json", help="where to write the rows")
    options = parser.parse_args()
    rows = {}
    try:
        for model in options.models:
            rows.update(_measure(model, options))
            if options.json:
                pathlib.Path(options.json).write_text(json.dumps(rows, indent=1))
    except BenchmarkError as error:
        sys.exit(f"benchmarks.gpu.compiled: {error}")


if __name__ == "__main__":
    main()
