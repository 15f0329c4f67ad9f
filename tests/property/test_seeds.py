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
_QUICK = 6  # so many in `make test`, the others in `make test-extended`
_MODES = ("graph", "eager", "compiled")


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    def is_compiled(seed):
        return False

    return comparing.results_of(
        request, test_seed, tmp_path_factory, running.run_seeds, is_compiled
    )


@pytest.mark.time_limit(2 * comparing.GROUP_SECONDS)
@pytest.mark.parametrize("seed", some_extended(_SEEDS, _SEEDS[_QUICK:]))
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
    return pytest.mark.extended if seed >= _QUICK else ()


@pytest.mark.time_limit(2 * comparing.GROUP_SECONDS)
@pytest.mark.parametrize("seed", [pytest.param(n, marks=_marks(n)) for n in _SEEDS])
def test_step(step_results, seed):
    """Steps that do something with their gradients."""
    comparing.check(steps.draw(seed), step_results(seed))
