"""Random trainings end with the weights that one process gets.

`PROPERTY_SEEDS` is the number of seeds; `make test-property` tries 200. A quarter of them is tried
with XLA, too. Of steps that do something with their gradients, one in three runs as a graph, one
eagerly, and one with XLA.
"""

import functools
import os

import pytest

from tests import side_by_side
from tests.cluster import run_workers
from tests.property import cases, running, steps
from tests.selection import asked_values

_SEEDS = range(int(os.environ.get("PROPERTY_SEEDS", "12")))
_COMPILED_SEEDS = range(0, len(_SEEDS), 4)
_MODES = ("graph", "eager", "compiled")
_TOGETHER = 20  # in one group of processes, by whose end nothing is shown
_GROUP_SECONDS = 900


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    """A function of a seed, and of whether it is compiled: what the single process and the workers
    of its group showed."""
    asked = {
        is_compiled: asked_values(request, "seed", test)
        for is_compiled, test in ((False, test_seed), (True, test_compiled_seed))
    }

    @functools.cache
    def of_group(group, is_compiled):
        seeds = [each for each in asked[is_compiled] if each // _TOGETHER == group]
        workers = 2 + group % 2
        return [_run(n, tmp_path_factory, seeds, is_compiled) for n in (0, workers)]

    return lambda seed, is_compiled: of_group(seed // _TOGETHER, is_compiled)


def _run(workers, tmp_path_factory, seeds, is_compiled):
    """What each of so many workers showed, or with 0 the single process."""
    return run_workers(
        running.run_seeds,
        workers=max(workers, 1),
        servers=1 if workers else 0,
        timeout=_GROUP_SECONDS,
        args=(not workers, str(tmp_path_factory.mktemp("files")), seeds, is_compiled),
    )


def _check(seed, single, workers):
    case = cases.draw(seed)
    theirs, ours = side_by_side.checked(str(seed), single[0], workers)
    unlike = {key: side_by_side.difference(ours[key], theirs[key]) for key in theirs}
    unlike = {key: value for key, value in unlike.items() if not value <= case.tolerance}
    assert not unlike, f"{len(workers)} workers, {case}: {unlike}"


@pytest.mark.time_limit(2 * _GROUP_SECONDS)
@pytest.mark.parametrize("seed", _SEEDS)
def test_seed(results, seed):
    _check(seed, *results(seed, is_compiled=False))


@pytest.mark.long
@pytest.mark.time_limit(2 * _GROUP_SECONDS)
@pytest.mark.parametrize("seed", _COMPILED_SEEDS)
def test_compiled_seed(results, seed):
    """Both sides compiled by XLA, as Keras does by default on a GPU."""
    _check(seed, *results(seed, is_compiled=True))


@pytest.fixture(scope="module")
def step_results(request, tmp_path_factory):
    """A function of a seed: what the single process and the workers of its group showed."""
    asked = asked_values(request, "seed", test_step)

    @functools.cache
    def of_group(group, mode):
        seeds = [n for n in asked if n // _TOGETHER == group and _mode(n) == mode]
        return [
            run_workers(
                running.run_steps,
                workers=max(workers, 1),
                servers=1 if workers else 0,
                timeout=_GROUP_SECONDS,
                args=(not workers, str(tmp_path_factory.mktemp("files")), seeds, mode),
            )
            for workers in (0, 2 + group % 2)
        ]

    return lambda seed: of_group(seed // _TOGETHER, _mode(seed))


def _mode(seed):
    return _MODES[seed % len(_MODES)]


@pytest.mark.time_limit(2 * _GROUP_SECONDS)
@pytest.mark.parametrize(
    "seed",
    [pytest.param(n, marks=pytest.mark.long if _mode(n) == "compiled" else ()) for n in _SEEDS],
)
def test_step(step_results, seed):
    """Steps that do something with their gradients."""
    step = steps.draw(seed)
    single, workers = step_results(seed)
    theirs, ours = side_by_side.checked(str(seed), single[0], workers)
    unlike = {key: side_by_side.difference(ours[key], theirs[key]) for key in theirs}
    unlike = {key: value for key, value in unlike.items() if not value <= step.tolerance}
    assert not unlike, f"{len(workers)} workers, {_mode(seed)}, {step}: {unlike}"
