"""`OuterSync` follows its rules, with real workers and a server."""

import json
import os

import numpy as np
import pytest

from tests import workers
from tests.selection import asked_values, some_extended

PROGRAM = os.path.join(os.path.dirname(__file__), "outer_sync_programs.py")
CASES = {
    "average": {"local_steps": 4, "outer": "average"},
    "average, each step": {"local_steps": 1, "outer": "average"},
    "diloco": {"local_steps": 3, "outer": "diloco"},
    "diloco, own rates": {
        "local_steps": 5,
        "outer": "diloco",
        "outer_learning_rate": 0.4,
        "outer_momentum": 0.9,
    },
    "fragments": {"local_steps": 6, "outer": "diloco", "fragments": 3},
    "delay": {"local_steps": 4, "outer": "diloco", "delay": 2},
    "fragments, delay": {"local_steps": 6, "outer": "diloco", "fragments": 3, "delay": 4},
    "delay, mix": {"local_steps": 4, "outer": "average", "delay": 3, "mix": 0.25},
}
STEPS = 31  # after which no round ends at once; two workers have rows in the last
FITS = {
    "average": ({"local_steps": 4}, 1),
    "diloco": ({"local_steps": 3, "outer": "diloco", "fragments": 2}, 1),
    "several steps at once": ({"local_steps": 5, "outer": "diloco"}, 5),
}


def _scenario(case):
    return f"rounds={json.dumps({'steps': STEPS, 'settings': CASES[case]})}"


def _fit(case):
    settings, steps = FITS[case]
    return f"fits={json.dumps({'settings': settings, 'steps_per_execution': steps})}"


@pytest.fixture(scope="module", params=some_extended([2, 3], [3]), ids="{}workers".format)
def group(request):
    codecs = [f"compressed={json.dumps({'steps': 8, 'compression': c})}" for c in ("bf16", "int8")]
    fits = asked_values(request, "case", test_fit_with_the_callback_is_the_same)
    rest = ["refusals", *map(_fit, fits), "fit_goes_on_after_an_exception"]
    return workers.run(PROGRAM, [*map(_scenario, CASES), *codecs, *rest], request.param)


@pytest.mark.parametrize("case", CASES)
def test_the_rules_are_followed(group, case):
    results = group[_scenario(case)]
    for result in results:
        assert result["before"] < 1e-12 and result["after"] < 1e-12, result
        assert result["divergence"] > 0
        assert result["bits"] == results[0]["bits"]
        assert result["rounds"] == results[0]["rounds"] >= STEPS // CASES[case]["local_steps"]


@pytest.mark.parametrize(("codec", "most"), [("bf16", 0.01), ("int8", 0.02)])
def test_codecs_work_with_it(group, codec, most):
    errors = group[f"compressed={json.dumps({'steps': 8, 'compression': codec})}"]
    assert 0.001 < errors[0] < most and errors == [errors[0]] * group.size


def test_bad_input_is_an_error_and_changes_nothing(group):
    for said, values in group["refusals"]:
        assert "there are no variables" in said[0]
        assert "fragments is 2, but there are 1 weights" in said[1]
        assert "nothing" in said[2] and len(said) == 3
        assert values == [1.0, 2.0]


@pytest.mark.parametrize("case", some_extended(FITS, ["average"]))
def test_fit_with_the_callback_is_the_same(group, case):
    results = group[_fit(case)]
    for found, expected, validated, evaluated, more_rounds in results:
        assert found == results[0][0] and more_rounds == 0
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
        # Validations see the global weights, and the moving statistics' average.
        assert validated == results[0][2] and evaluated == results[0][3]
        assert validated[-1] == pytest.approx(evaluated, rel=1e-6)


def test_fit_goes_on_after_an_exception(group):
    results = group["fit_goes_on_after_an_exception"]
    for said, weights in results:
        assert said[0] == "'of the program'" and weights == results[0][1]
        assert "has no variables yet" in said[1]
        assert "this one is a DistributedOptimizer" in said[2]
        assert "BytePSStrategy(local_steps=...)" in said[3] and len(said) == 4
