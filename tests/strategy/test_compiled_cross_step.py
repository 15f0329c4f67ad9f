"""Training across steps that XLA compiles gives what other steps give."""

import re

import numpy as np
import pytest
from selection import asked_values, some_slow

from tests import workers
from tests.strategy.test_cross_step import PROGRAM, _call, _same, _train

pytestmark = pytest.mark.time_limit(620)

CASES = {
    "momentum": {},
    "scheduled adam": {"optimizer": "scheduled adam"},
    "steps per execution": {"steps_per_execution": 4},
    "wide layers": {
        "extra": "wide",
        "optimizer": "slow",
    },  # whose sums are waited for in the forward pass
}
_SLOW = ("scheduled adam", "steps per execution")
LOST = "are lost, or done in part, on this worker"


def _weights(result):
    """But the states of random generators, which are integers."""
    return [v for v in result["weights"] if v.dtype.kind == "f"]


@pytest.fixture(scope="module")
def group(request):
    asked = asked_values(request, "case", test_weights_are_those_of_steps_without_xla)
    scenarios = [_scenario(case, **way) for case in asked for way in ({}, {"jit_compile": True})]
    return workers.run(PROGRAM, [*scenarios, "compiled_step_fails"], 2)


def _scenario(case, **way):
    # XLA draws other random numbers for dropout.
    return _train(dropout=0.0, **CASES[case], **way)


@pytest.mark.parametrize("case", some_slow(CASES, _SLOW))
def test_weights_are_those_of_steps_without_xla(case, group):
    plain, compiled = group[_scenario(case)], group[_scenario(case, jit_compile=True)]
    for expected, result in zip(plain, compiled, strict=True):
        assert not result["warnings"]
        assert result["done"] == expected["done"]
        np.testing.assert_allclose(result["losses"], expected["losses"], 1e-5)
        for ours, theirs in zip(_weights(result), _weights(expected), strict=True):
            # Roundings add up in 51 steps; an update that is missing makes far more.
            np.testing.assert_allclose(ours, theirs, 1e-4, 1e-4)
    assert _same(compiled[0]["weights"], compiled[1]["weights"])


def test_after_a_step_that_fails_the_same_model_trains_on(group):
    for result in group["compiled_step_fails"]:
        assert len(result["errors"]) == len(result["warnings"]) == 3
        assert all("sums of rows" in error for error in result["errors"]), result["errors"]
        assert all(LOST in warning for warning in result["warnings"])
        # XLA updates in place: those of the fourth step are done in part when the fifth fails.
        assert 3 * 3 + 4 <= result["updates"] <= 3 * 4 + 4
        assert all(np.isfinite(v).all() for v in _weights(result))


@pytest.mark.slow
def test_an_input_that_fails_loses_no_update():
    scenario = _call("input_fails", jit_compile=True)
    for result in workers.run(PROGRAM, [scenario], 2)[scenario]:
        assert "no more data" in result["error"]
        assert not result["warnings"]


@pytest.mark.slow
def test_a_lost_worker_ends_the_training_with_an_error_that_names_it():
    scenario = _call("worker_is_lost", jit_compile=True)
    group = workers.run(PROGRAM, [scenario], 2, timeout=200)
    result = group.of_worker(0, scenario)
    assert "UnavailableError" in result["error"]
    assert re.search(r"(worker|server) 1\b.* (is lost|ended without a goodbye)", result["error"])
    (warning,) = result["warnings"]
    assert LOST in warning
