"""Random trainings end with the weights that one process gets.

`PROPERTY_SEEDS` is the number of seeds; `make test-property` tries 200.
"""

import os

import pytest

from tests import side_by_side
from tests.cluster import run_workers
from tests.property import cases, running
from tests.selection import asked_values

_SEEDS = range(int(os.environ.get("PROPERTY_SEEDS", "20")))
_TOGETHER = 20  # in one group of processes, by whose end nothing is shown
_GROUP_SECONDS = 900


def _workers(seed):
    """2, and 3 in every other group."""
    return 2 + seed // _TOGETHER % 2


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    """A function of a seed: what the single process and the workers of its group showed."""
    asked = asked_values(request, "seed", test_seed)
    groups = {}

    def of(seed):
        group = seed // _TOGETHER
        if group not in groups:
            seeds = [each for each in asked if each // _TOGETHER == group]
            groups[group] = [_run(n, tmp_path_factory, seeds) for n in (0, _workers(seed))]
        return groups[group]

    return of


def _run(workers, tmp_path_factory, seeds):
    """What each of so many workers showed, or with 0 the single process."""
    return run_workers(
        running.run_seeds,
        workers=max(workers, 1),
        servers=1 if workers else 0,
        timeout=_GROUP_SECONDS,
        args=(not workers, str(tmp_path_factory.mktemp("files")), seeds),
    )


@pytest.mark.time_limit(2 * _GROUP_SECONDS)
@pytest.mark.parametrize("seed", _SEEDS)
def test_seed(results, seed):
    case, (single, workers) = cases.draw(seed), results(seed)
    theirs, ours = side_by_side.checked(str(seed), single[0], workers)
    unlike = {key: side_by_side.difference(ours[key], theirs[key]) for key in theirs}
    unlike = {key: value for key, value in unlike.items() if not value <= case.tolerance}
    assert not unlike, f"{len(workers)} workers, {case}: {unlike}"
