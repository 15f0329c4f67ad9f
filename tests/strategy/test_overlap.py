"""Each gradient leaves as soon as it is there, as `benchmarks/arrivals.py` measures.

The bound is safe on a busy machine: after the 12 gradients that count, backpropagation has to
compute one that takes 32 times as long as the longest of them, and the median of seven steps counts
(of each step the worse worker). If that fails, it is measured again: other programs may have had
the processors, and gradients that wait for the end of backpropagation never arrive early. What is
asked for is that they have begun to arrive, by the server's clock, when that last gradient enters
the engine.
"""

import pytest

from benchmarks import arrivals
from tf_byteps.timeline import Part

pytestmark = pytest.mark.time_limit(480)

_ATTEMPTS = 3


@pytest.fixture(scope="module")
def job():
    with arrivals.start_job() as job:
        job.workers.call("join", timeout=300)
        yield job
        job.finish()


@pytest.mark.parametrize(
    "way, kind", arrivals.CASES, ids=[": ".join(case) for case in arrivals.CASES]
)
def test_gradients_arrive_before_backpropagation_ends(job, way, kind):
    for _ in range(_ATTEMPTS):
        steps = arrivals.measure(job, way, kind)
        assert len(steps) >= 5
        assert {step.gradients for step in steps} == {14}, steps  # of kernels and biases, 7 layers
        if arrivals.median_begun(steps) >= 14 - arrivals.LATE_GRADIENTS:
            return
    pytest.fail(f"they have not arrived in {_ATTEMPTS} measurements: {steps}")


def test_the_measurement_sees_gradients_that_wait(job):
    steps = arrivals.measure(job, *arrivals.COMPARISON)
    assert arrivals.median_begun(steps) < 14 - arrivals.LATE_GRADIENTS, steps


def test_of_a_step_the_worse_worker_counts():
    parts = [
        _part(0, "other", enqueued=10, arrival_began=20),
        _part(0, arrivals.LAST_GRADIENT, enqueued=30, arrival_began=31),
        _part(1, "gradient/other", enqueued=40, arrival_began=51),
        _part(1, arrivals.LAST_GRADIENT, enqueued=50, arrival_began=52),
        _part(0, "gradient/other", enqueued=12, arrival_began=20),
    ]
    assert arrivals.steps_of(parts) == [arrivals.Step(begun=0, gradients=2, lead=-1e-6)]
    assert arrivals.steps_of(parts[:2] + parts[4:]) == [arrivals.Step(1, 2, 1e-5)]


def _part(worker, tensor, **times):
    unknown = dict.fromkeys(("placed", "pushed", "arrived", "answered"))
    unknown |= dict.fromkeys(("reply_began", "reply_received"))
    unknown |= dict.fromkeys(("computed", "reduced", "copied_out", "copied_in", "broadcast"))
    return Part(
        worker, tensor, "sum", "float32", 0, 0, "OK", 0, 1, 4, 0, **unknown, **times, done=90
    )
