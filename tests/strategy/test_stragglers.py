"""`fit` with a worker that is three times as slow as the others."""

import os
import statistics

import pytest

from tests import workers
from tests.strategy.straggler_programs import PAUSE, SLOW, STEPS

_PROGRAM = os.path.join(os.path.dirname(__file__), "straggler_programs.py")


def _run(scenarios):
    return workers.run(_PROGRAM, scenarios, 3, timeout=200, BYTEPS_MAX_LAG=str(STEPS))


@pytest.fixture(scope="module")
def group():
    return _run(["fit_with_a_slow_worker", "refusals"])


def _median_step(result):
    starts = result["starts"]
    return statistics.median(end - begin for begin, end in zip(starts, starts[1:]))


def test_the_fast_workers_do_not_wait_and_all_weights_are_equal(group):
    _check(group["fit_with_a_slow_worker"])


@pytest.mark.slow
@pytest.mark.time_limit(240)
def test_the_same_without_a_strategy():
    _check(_run(["fit_without_a_strategy"])["fit_without_a_strategy"])


def _check(results):
    assert len({result["digest"] for result in results}) == 1
    assert all(len(result["starts"]) == STEPS for result in results)
    medians = [_median_step(result) for result in results]
    assert medians[SLOW] > 3 * PAUSE
    for rank in set(range(3)) - {SLOW}:
        assert medians[rank] < 0.75 * medians[SLOW], medians


def test_metrics_cover_all_workers(group):
    histories = [result["history"] for result in group["fit_with_a_slow_worker"]]
    assert histories[0] == histories[1] == histories[2]


def test_refusals(group):
    for errors in group["refusals"]:
        kinds, messages = zip(*errors, strict=True)
        assert set(kinds) == {"ValueError"}
        assert "backup_workers is 3, but the job has 3 workers" in messages[0]
        assert "must be an integer of at least 0, got -1" in messages[1]
        assert "cross_step is set" in messages[2]
        assert "needs op=Average" in messages[3]
