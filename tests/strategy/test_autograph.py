"""AutoGraph converts a program's functions, and none of tf_byteps, which would take seconds."""

import os

import pytest

from tests import workers

PROGRAM = os.path.join(os.path.dirname(__file__), "autograph_programs.py")


@pytest.fixture(scope="module")
def converts():
    return workers.run(PROGRAM, ["converts"], 2)["converts"]


def test_a_programs_own_functions_are_converted(converts):
    for (of_strategy, of_tape, of_optimizer, of_compressor), _, modules in converts:
        assert of_strategy == [6.0, 2.0]
        assert of_tape == [2.0, 0.0]
        assert of_optimizer == [1.0, 1.0]
        assert of_compressor == [1.0, 6.0]
        assert "autograph_programs" in modules


def test_so_is_a_models_own_step(converts):
    """All workers' rows are in the batch, and one worker's decide for its own step."""
    for _, decided, _ in converts:
        assert decided == [0.0, 2.0]


def test_functions_of_tf_byteps_are_not(converts):
    for *_, modules in converts:
        assert not [each for each in modules if each.partition(".")[0] == "tf_byteps"], modules
