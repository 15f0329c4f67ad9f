"""Process sets of three workers with JAX's arrays: 0 and 2, 1 and 2."""

import os

import pytest

from tests import set_values, workers

pytest.importorskip("jaxlib", reason="jax is not installed")

PROGRAM = os.path.join(os.path.dirname(__file__), "process_sets_programs.py")
SETS = [(0, 2), (1, 2)]


@pytest.fixture(scope="module")
def group():
    scenarios = ["exchanges", "values", "gradients", "refusals"]
    return workers.run(PROGRAM, scenarios, 3, JAX_PLATFORMS="cpu", KERAS_BACKEND="jax")


def test_exchanges_are_between_the_members(group):
    for rank, both in enumerate(group["exchanges"]):
        for found in both:  # at once, and compiled
            for ranks, results in zip([r for r in SETS if rank in r], found, strict=True):
                values = [1.0 + each for each in ranks]
                total = sum(values)
                assert results == [[total], [total / 2], values, [values[0]]] or results == (
                    [total],
                    [total / 2],
                    values,
                    [values[0]],
                )


def test_values_of_keras_are_those_of_the_members(group):
    for rank, found in enumerate(group["values"]):
        set_values.check(rank, found, SETS)


def test_gradients(group):
    for rank, found in enumerate(group["gradients"]):
        for ranks, gradient in zip([r for r in SETS if rank in r], found, strict=True):
            assert gradient == [2 * sum(1.0 + each for each in ranks)] * 2


def test_a_worker_that_is_no_member(group):
    for rank, sentence in enumerate(group["refusals"]):
        if rank < 2:
            assert sentence.startswith(f"worker {rank} is not in the process set of workers ")
