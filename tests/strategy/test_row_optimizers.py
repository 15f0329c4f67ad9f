"""Optimizers that update an embedding's rows, with workers that look up other rows."""

import os

import numpy as np
import pytest

from tests import workers

PROGRAM = os.path.join(os.path.dirname(__file__), "row_optimizers_programs.py")
NAMES = (
    "keras.Adagrad",
    "Adagrad",
    "Ftrl",
    "RMSprop",
    "Adadelta",
    "LazySGD",
    "LazyAdam",
    "RowWiseAdagrad",
)


def _scenario(function, name):
    return workers.scenario(function, name=name)


@pytest.fixture(scope="module")
def group():
    return workers.run(PROGRAM, [_scenario("strategy", name) for name in NAMES], 3)


@pytest.fixture(scope="module")
def alone():
    scenarios = [_scenario(what, name) for name in NAMES for what in ("plain", "tables")]
    return workers.run(PROGRAM, [*scenarios, "lookups"], 1)


@pytest.mark.parametrize("name", NAMES)
def test_workers_train_as_one_process_does(group, alone, name):
    weights, losses = alone[_scenario("plain", name)][0]
    for others, other_losses in group[_scenario("strategy", name)]:
        np.testing.assert_allclose(others, weights, rtol=0, atol=1e-9)
        np.testing.assert_allclose(other_losses, losses, rtol=1e-9)
    assert losses[1] < losses[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_step_computes_with_rows_and_not_with_the_table(alone, name):
    assert alone[_scenario("tables", name)] == [[]]


def test_lookups_are_those_of_keras(alone):
    assert "is not in [0, 9)" in alone["lookups"][0]
