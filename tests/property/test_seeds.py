"""Random trainings end with the weights that one process gets.

`PROPERTY_SEEDS` is the number of seeds; `make test-property` tries 200. A quarter of them is tried
with XLA, too. Of steps that do something with their gradients, one in three runs as a graph, one
eagerly, and one with XLA.
"""

import os

import pytest

from tests.property import cases, comparing, running, steps
from tests.selection import some_extended

_SEEDS = range(int(os.environ.get("PROPERTY_SEEDS", "12")))
_COMPILED_SEEDS = range(0, len(_SEEDS), 4)
# In `make test`; the others are in `make test-extended`. They have sample weights and accumulated
# gradients, a step of their own with a loss scale, an embedding in mixed precision.
_EVERYDAY = (0, 4, 5)
_EVERYDAY_STEPS = (1, 3)
_MODES = ("graph", "eager", "compiled")


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    def is_compiled(seed):
        return False

    return comparing.results_of(
        request, test_seed, tmp_path_factory, running.run_seeds, is_compiled
    )


@pytest.mark.time_limit(2 * comparing.GROUP_SECONDS)
@pytest.mark.parametrize("seed", some_extended(_SEEDS, {*_SEEDS} - {*_EVERYDAY}))
def test_seed(results, seed):
    comparing.check(cases.draw(seed), results(seed))


@pytest.fixture(scope="module")
def compiled_results(request, tmp_path_factory):
    def is_compiled(seed):
        return True

    return comparing.results_of(
        request, test_compiled_seed, tmp_path_factory, running.run_seeds, is_compiled
    )


@pytest.mark.long
@pytest.mark.time_limit(2 * comparing.GROUP_SECONDS)
@pytest.mark.parametrize("seed", _COMPILED_SEEDS)
def test_compiled_seed(compiled_results, seed):
    """Both sides compiled by XLA, as Keras does by default on a GPU."""
    comparing.check(cases.draw(seed), compiled_results(seed))


@pytest.fixture(scope="module")
def step_results(request, tmp_path_factory):
    return comparing.results_of(request, test_step, tmp_path_factory, running.run_steps, _mode)


def _mode(seed):
    return _MODES[seed % len(_MODES)]


def _marks(seed):
    if _mode(seed) == "compiled":
        return pytest.mark.long
    return () if seed in _EVERYDAY_STEPS else pytest.mark.extended


@pytest.mark.time_limit(2 * comparing.GROUP_SECONDS)
@pytest.mark.parametrize("seed", [pytest.param(n, marks=_marks(n)) for n in _SEEDS])
def test_step(step_results, seed):
    """Steps that do something with their gradients."""
    comparing.check(steps.draw(seed), step_results(seed))
