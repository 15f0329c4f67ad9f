"""`DistributedOptimizer` with `BYTEPS_ENABLE_ASYNC=1`."""

import json
import os

import numpy as np
import pytest

from tests import workers
from tests.selection import some_extended

PROGRAM = os.path.join(os.path.dirname(__file__), "asynchronous_programs.py")
STEPS = 15
_COUNTED = {
    "eager": {"op": "sum", "graph": False, "inner": False},
    "graph": {"op": "average", "graph": True, "inner": False},
    "loss scale": {"op": "sum", "graph": True, "inner": True},
}


def _scenario(name):
    return f"counted={json.dumps({'name': name, **_COUNTED[name]})}"


@pytest.fixture(scope="module", params=some_extended([2, 3], [3]))
def group(request):
    scenarios = [*map(_scenario, _COUNTED), "fits", "fits_with_callbacks", "refusals"]
    return workers.run(PROGRAM, scenarios, request.param, BYTEPS_ENABLE_ASYNC="1")


@pytest.mark.parametrize("name", _COUNTED)
def test_changes_of_all_workers_add_up_and_nobody_waits(group, name):
    results = group[_scenario(name)]
    share = len(results) if _COUNTED[name]["op"] == "average" else 1
    moved = [STEPS * 6 * 2**rank / share for rank in range(len(results))]
    for rank, (alone, *weights) in enumerate(results):
        assert alone == pytest.approx(sum(moved[: rank + 1]), rel=0)
        np.testing.assert_allclose(weights, [[sum(moved)] * 2] * 2, rtol=0)


def test_a_program_of_byteps_trains(group):
    results = group["fits"]
    for losses, weights in results:
        assert max(losses[2:]) < losses[0] / 4
        assert weights == results[0][1]


def test_a_program_with_byteps_callbacks_trains(group):
    results = group["fits_with_callbacks"]
    assert all(each == results[0] for each in results), "metrics are averages"
    assert results[0]["loss"][-1] < 0.9 * results[0]["loss"][0]
    assert results[0]["accuracy"][-1] > 0.7
    assert results[0]["lr"][0] < results[0]["lr"][-1]


def test_a_variable_that_not_all_have_is_an_error_on_all():
    for kind, message in workers.run(PROGRAM, ["differs"], 2, BYTEPS_ENABLE_ASYNC="1")["differs"]:
        assert kind == "BytePSError"
        assert "BYTEPS_ENABLE_ASYNC is 1 on workers [0]: set" in message


def test_what_is_about_gradients_is_refused(group):
    for found, weight in group["refusals"]:
        assert "leave compression, gradient_predivide_factor" in found["compression"][1]
        assert "leave compression, gradient_predivide_factor" in found["factor"][1]
        assert "a tape has gradients, not changes" in found["tape"][1]
        assert "BytePSStrategy trains synchronously" in found["strategy"][1]
        assert weight == [1, 1, 1]
