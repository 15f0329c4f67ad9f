"""AutoGraph converts a program's functions, and none of tf_byteps, which would take seconds."""

import os

import pytest

from tests import workers

PROGRAM = os.path.join(os.path.dirname(__file__), "autograph_programs.py")


@pytest.fixture(scope="module")
def converts():
    return workers.run(PROGRAM, ["converts"], 1)["converts"][0]


def test_a_programs_own_functions_are_converted(converts):
    (of_strategy, of_tape, of_optimizer, of_compressor), modules = converts
    assert of_strategy == [6.0, 2.0]
    assert of_tape == [2.0, 0.0]
    assert of_optimizer == [1.0, 1.0]
    assert of_compressor == [1.0, 6.0]
    assert "autograph_programs" in modules


def test_functions_of_tf_byteps_are_not(converts):
    _, modules = converts
    assert not [each for each in modules if each.startswith("tf_byteps")]
