"""Keras 2 (`tf_keras`): its trainer is refused in the scope, loops of one's own are right."""

import importlib.util
import os
import pathlib

import numpy as np
import pytest

from tests import workers

PROGRAM = os.path.join(os.path.dirname(__file__), "keras2_programs.py")
_FOUND = importlib.util.find_spec("tf_keras")

# It needs the package `tensorflow` by that name, which `tensorflow_cpu` is not.
pytestmark = [
    pytest.mark.time_limit(620),
    pytest.mark.skipif(_FOUND is None, reason="tf_keras is not installed (pip install tf_keras)"),
]

REFUSED = ["compiled_in_the_scope", "predicting"]


def _run(scenarios, size):
    path = [pathlib.Path(__file__).parents[2], pathlib.Path(_FOUND.origin).parents[1]]
    return workers.run(PROGRAM, scenarios, size, PYTHONPATH=os.pathsep.join(map(str, path)))


@pytest.fixture(scope="module")
def group():
    return _run([*REFUSED, "outside_the_scope", "loop"], 2)


@pytest.mark.parametrize("scenario", REFUSED)
def test_the_trainer_is_refused(group, scenario):
    for failure in group.failures(scenario):
        assert failure.kind == "NotImplementedError"
        assert "Keras 2" in failure.message and "strategy.run" in failure.message


def test_outside_of_the_scope_it_works(group):
    assert group["outside_the_scope"] == [23, 23]


def test_a_loop_is_that_of_one_process(group):
    ((losses, weights),) = _run(["loop"], 0)["loop"]
    for ours, our_weights in group["loop"]:
        np.testing.assert_allclose(ours, losses, rtol=1e-5)
        for mine, expected in zip(our_weights, weights, strict=True):
            np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-6)
