"""Exchange beside computation: are gradients in flight before backpropagation ends?

Two workers train a model of seven layers through one server. Of its 14 gradients all but two must
have begun to arrive at the server, by its clock, when backpropagation ends: when the gradient of
the first layer's kernel has been computed and enters the engine. Nothing of backpropagation comes
after that gradient, and what it depends on has nothing to do with the exchanges, so that its entry
is the end also if all others were late.

    python -m benchmarks.arrivals
"""

import collections
import dataclasses
import statistics
import tempfile

from absl import flags

from benchmarks import options, report
from benchmarks.jobs import Job
from benchmarks.measure import Runs
from benchmarks.report import Row
from tf_byteps import timeline

LATE_GRADIENTS = 2  # the first layer's own
LAST_GRADIENT = "gradient/model/layer1/kernel"
COMPARISON = ("for comparison: waits for all", "Adam")
_IN_STRATEGY = (
    "SGD",
    "Adam",
    "clipnorm",
    "global_clipnorm",
    "clipvalue",
    "loss scaling",
    "accumulation",
    "accumulation and loss scaling",
)
_WITHOUT = ("Adam", "global_clipnorm", "loss scaling", "accumulation", _IN_STRATEGY[-1])
CASES = (
    *(("BytePSStrategy, fit", kind) for kind in _IN_STRATEGY),
    ("DistributedOptimizer, fit", "Adam"),
    *(("DistributedOptimizer, loop", kind) for kind in _WITHOUT),
    ("DistributedGradientTape, loop", "Adam"),
)
_SECONDS = 200  # for one case


@dataclasses.dataclass(frozen=True)
class Step:
    """One update, on the worker where it looks worst.

    Attributes:
        begun: gradients that had begun to arrive at the server when backpropagation ended.
        gradients: their number.
        lead: milliseconds between the first arrival and the end of backpropagation; negative if
            nothing had arrived.
    """

    begun: int
    gradients: int
    lead: float


def start_job():
    """The `Job` in which cases are measured; a context manager. Then call "join" in its workers."""
    # On a busy machine one worker may need minutes to import TensorFlow.
    settings = {"BYTEPS_RENDEZVOUS_TIMEOUT": "300"}
    return Job("benchmarks.programs.arrivals", workers=2, servers=1, settings=settings)


def measure(job, way, kind):
    """Trains in one way; returns the `Step`s, without the first, in which TensorFlow compiles."""
    with tempfile.TemporaryDirectory(prefix="byteps_bench_") as folder:
        job.workers.call("train", timeout=_SECONDS, way=way, kind=kind, path=folder)
        return steps_of(timeline.read(folder))[1:]


def steps_of(parts):
    """The `Step`s that `timeline.Part`s of all workers tell of."""
    updates = collections.defaultdict(lambda: collections.defaultdict(list))
    for part in parts:
        if part.tensor.startswith("gradient/"):
            updates[part.round, part.worker][part.tensor].append(part)
    steps = collections.defaultdict(list)
    for (round, _), gradients in sorted(updates.items()):
        end = gradients[LAST_GRADIENT][0].enqueued
        arrivals = [min(part.arrival_began for part in parts) for parts in gradients.values()]
        begun = sum(arrival < end for arrival in arrivals)
        steps[round].append(Step(begun, len(arrivals), (end - min(arrivals)) / 1e6))
    return [min(workers, key=lambda step: (step.begun, step.lead)) for workers in steps.values()]


def median_begun(steps):
    """Gradients that had begun to arrive, in the median step."""
    return statistics.median_low(step.begun for step in steps)


def rows_of(way, kind, steps):
    """Two figures: how many gradients are in flight in time, and how early the first one is."""
    case = f"{way}: {kind}"
    needed = steps[0].gradients - LATE_GRADIENTS
    begun = Runs(tuple(step.begun for step in steps), f"of {steps[0].gradients}")
    target = None if (way, kind) == COMPARISON else (">=", needed)
    return [
        Row("gradients begun before the end", case, begun, target),
        Row("first arrival before the end", case, Runs(tuple(s.lead for s in steps), "ms")),
    ]


def run(cases=(*CASES, COMPARISON)):
    """Measures cases, pairs of (way, kind); returns rows."""
    rows = []
    with start_job() as job, report.progress() as bar:
        task = bar.add_task("arrivals", total=len(cases))
        job.workers.call("join", timeout=300)
        for way, kind in cases:
            rows += rows_of(way, kind, measure(job, way, kind))
            bar.advance(task)
        job.finish()
    return rows[::2] + rows[1::2]  # one figure after the other


def main():
    cases = [case for case in (*CASES, COMPARISON) if flags.FLAGS.only in ": ".join(case)]
    return report.publish("arrivals", "Exchange beside computation", run(cases))


if __name__ == "__main__":
    flags.DEFINE_string("only", "", "cases whose name contains this")
    options.run(main)
