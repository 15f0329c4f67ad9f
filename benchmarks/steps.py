"""A training step of a multi-layer perceptron on this machine, against the peers.

Same layers, initial weights, batches and threads for all; one competitor's processes run steps
while those of the others wait. The losses must agree.

    python -m benchmarks.steps --parameters 25
"""

import argparse
import contextlib
import json
import math
import pathlib
import socket
import sys
import tempfile

from benchmarks import peers, report
from benchmarks.jobs import Job, environment
from benchmarks.measure import Runs, interleaved, ratios
from benchmarks.report import Row
from benchmarks.sessions import BenchmarkError, Session

_TENSORFLOW = "benchmarks.programs.mlp_tensorflow"
_TORCH = "benchmarks.programs.mlp_torch"
_JAX = "benchmarks.programs.mlp_jax"
LAYERS = 4
WIDTHS = {25: 2500, 100: 5000}  # of LAYERS square layers, by millions of parameters
_BATCH = 8  # rows of each worker
_STEPS = 3  # in each run; the median counts
_WARMUPS = 3
_FIT_STEPS = (2, 8)  # the difference of two calls is free of what a call costs by itself
_FIT = "tf_byteps, Model.fit"
_COMPILED = "tf_byteps, Model.fit, compiled by XLA"
_PEERS = {"MultiWorkerMirroredStrategy": 4.0, "torch DistributedDataParallel": 1.3}
_JAX_FIT = "keras DataParallel on JAX, Model.fit, compiled by XLA"
_JAX_LIMIT = 1.4


def mirrored_session(program, workers, folder, cluster=None):
    """Starts processes for MultiWorkerMirroredStrategy, as a `Session`."""
    if cluster:
        addresses = [f"{address}:29421" for address in cluster.addresses[:workers]]
    else:
        held = [socket.create_server(("127.0.0.1", 0)) for _ in range(workers)]
        addresses = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in held]
        for listener in held:
            listener.close()
    environments = [
        environment(
            TF_CONFIG=json.dumps(
                {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
            )
        )
        for rank in range(workers)
    ]
    namespaces = cluster.namespaces[:workers] if cluster else None
    return Session(program, environments, pathlib.Path(folder), namespaces, label="mirrored worker")


def step_seconds(spans_by_worker):
    """The median time of a step; a step lasts until its slowest worker has done it."""
    steps = list(zip(*(answer["spans"] for answer in spans_by_worker)))
    lengths = [max(e for _, e in step) - min(b for b, _ in step) for step in steps]
    return Runs(tuple(lengths), "s").median


@contextlib.contextmanager
def _competitors(workers, width, servers, settings):
    """Sessions whose processes have built the model, by name, and what the first losses are."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="byteps_bench_"))
        job = stack.enter_context(Job(_TENSORFLOW, workers, servers, settings=settings))
        job.workers.call("join", strategy="byteps")
        sessions = {"tf_byteps": job.workers}
        mirrored = stack.enter_context(mirrored_session(_TENSORFLOW, workers, folder))
        mirrored.call("join", strategy="mirrored")
        sessions["MultiWorkerMirroredStrategy"] = mirrored
        if not peers.TORCH.why_missing:
            torch = stack.enter_context(peers.gloo_session(_TORCH, workers, folder, port=29412))
            torch.call("join")
            sessions["torch DistributedDataParallel"] = torch
        arguments = [
            {"width": width, "layers": LAYERS, "batch": _BATCH, "rank": rank}
            for rank in range(workers)
        ]
        for session in sessions.values():
            session.call_each("build", arguments)
        yield sessions


def _check_losses(answers):
    """Fails if the competitors have not computed the same."""
    losses = {name: [worker["loss"] for worker in workers] for name, workers in answers.items()}
    expected = losses["tf_byteps"]
    for name, given in losses.items():
        if not all(math.isclose(a, b, rel_tol=1e-3) for a, b in zip(expected, given, strict=True)):
            raise BenchmarkError(f"{name} has other losses than tf_byteps: {losses}")


def rows_of(millions, rounds, workers=2, servers=0, settings=None, fit=True):
    """The steps of all competitors, and the ratios to tf_byteps's; rows."""
    width = WIDTHS[millions]
    with contextlib.ExitStack() as stack:
        sessions = stack.enter_context(_competitors(workers, width, servers, settings))
        jax = None
        if fit and not peers.JAX.why_missing:
            jax = stack.enter_context(peers.jax_session(_JAX, workers))
        first = {n: s.call("steps", kind="plain", count=_WARMUPS) for n, s in sessions.items()}
        _check_losses(first)
        run = {
            name: lambda session=session: step_seconds(
                session.call("steps", kind="plain", count=_STEPS)
            )
            for name, session in sessions.items()
        }
        if fit:
            run[_FIT] = _fit(sessions["tf_byteps"], width, jit_compile=False)
            run[_COMPILED] = _fit(sessions["tf_byteps"], width, jit_compile=True)
            if jax:
                run[_JAX_FIT] = _fit(jax, width)
        with report.progress() as bar:
            task = bar.add_task(f"{millions} M parameters", total=rounds * len(run))
            times = interleaved(rounds, "s", run, lambda: bar.advance(task))
    case = f"{millions} M parameters, {workers} workers, batch {_BATCH} each"
    rows = [
        Row("training step", f"{case}: {name}", runs.map(lambda s: 1000 * s, "ms"))
        for name, runs in times.items()
    ]
    if fit:
        speed = ratios(times[_FIT], times[_COMPILED])
        rows.append(Row("step, speed compiled by XLA", case, speed, (">=", 1.0), goal="steps"))
        speed = ratios(times[_JAX_FIT], times[_COMPILED]) if _JAX_FIT in times else None
        what, target = "step compiled by XLA, speed against JAX", (">=", _JAX_LIMIT)
        rows.append(Row(what, case, speed, target, peers.JAX.why_missing, goal="steps"))
    for name, limit in _PEERS.items():
        figure, target = f"step, speed against {name}", (">=", limit)
        if name in times:
            speed = ratios(times[name], times["tf_byteps"])
            rows.append(Row(figure, case, speed, target, goal="steps"))
        else:
            rows.append(Row(figure, case, None, target, peers.TORCH.why_missing, goal="steps"))
    return rows


def _fit(session, width, **jit):
    """A function that measures a step of `Model.fit`."""
    session.call("build_fit", width=width, layers=LAYERS, batch=_BATCH, **jit)
    session.call("fit", count=_FIT_STEPS[0], **jit)

    def measure():
        short, long = (max(session.call("fit", count=count, **jit)) for count in _FIT_STEPS)
        return (long - short) / (_FIT_STEPS[1] - _FIT_STEPS[0])

    return measure


def run(millions, rounds, settings=None):
    """Rows of several sizes of the model."""
    return [row for size in millions for row in rows_of(size, rounds, settings=settings)]


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steps", description=__doc__)
    parser.add_argument(
        "--parameters", type=int, nargs="+", choices=sorted(WIDTHS), default=sorted(WIDTHS)
    )
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(arguments)
    try:
        rows = run(given.parameters, given.rounds)
    except BenchmarkError as error:
        raise SystemExit(f"error: {error}") from None
    return 0 if report.publish("steps", "Training steps", rows) else 1


if __name__ == "__main__":
    sys.exit(main())
