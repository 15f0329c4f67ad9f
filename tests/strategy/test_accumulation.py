"""Gradients that are accumulated where an epoch ends: the next training, a saved model and another
number of workers go on from them as one process does."""

import json
import os
import shutil

import pytest

from tests import side_by_side, workers
from tests.selection import asked

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(2500)

PROGRAM = os.path.join(os.path.dirname(__file__), "accumulation_programs.py")
TOLERANCE = 1e-7
CASES = {
    "fits": {},
    "fits, traced": {"eager": False},
    "fits, loss scale": {"optimizer": "loss scale"},
    "fits, several": {"optimizer": "several"},
    "fits, two": {"optimizer": "two"},
    "saved_after_an_epoch": {},
    "saved_after_batches": {},
    "checkpointed": {},
    "committed": {},
    "interrupted": {},
    "backed_up, epoch": {"save_freq": "epoch"},
    "backed_up, 3": {"save_freq": 3},
    "distributed_optimizer": {},
}
_WITH_FOLDER = ("saved", "checkpointed", "committed", "backed_up", "distributed")


def _scenario(case, folder, **arguments):
    arguments |= CASES[case]
    if case.startswith(_WITH_FOLDER):
        arguments["folder"] = str(folder)
    return f"{case.split(',')[0]}={json.dumps(arguments)}"


# With three workers the others are in make test-all.
_QUICK_OF_THREE = ("fits", "backed_up, 3")


def _parameters():
    for case in CASES:
        yield pytest.param(case, 2, id=f"{case}-2")
        marks = () if case in _QUICK_OF_THREE else pytest.mark.slow
        yield pytest.param(case, 3, id=f"{case}-3", marks=marks)


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    """A function of a number of workers, 0 of one process: a function of a case's results.

    Three workers go on from the backups of two.
    """
    rows = asked(request, test_it_goes_on_as_in_one_process)
    names = {size: [row["case"] for row in rows if row["size"] == size] for size in (2, 3)}
    names[2] += [case for case in names[3] if case.startswith("backed_up") and case not in names[2]]
    names[0] = list(dict.fromkeys([*names[2], *names[3]]))
    folders, groups = {}, {}

    def of(size):
        if size in groups:
            return groups[size]
        folders[size] = tmp_path_factory.mktemp(f"of-{size}")
        if size == 3:
            of(2)
            for kept in folders[2].glob("* kept"):
                shutil.copytree(kept, folders[3] / kept.name.removesuffix(" kept"))
        plain = {"plain": True} if size == 0 else {}
        scenarios = {case: _scenario(case, folders[size], **plain) for case in names[size]}
        group = workers.run(PROGRAM, list(scenarios.values()), size, timeout=800)
        groups[size] = lambda case: group[scenarios[case]]
        return groups[size]

    return of


@pytest.mark.parametrize(("case", "size"), list(_parameters()))
def test_it_goes_on_as_in_one_process(results, case, size):
    (expected,) = results(0)(case)
    ours = results(size)(case)
    assert all(each == ours[0] for each in ours)
    for key, values in expected.items():
        for our_value, value in zip(ours[0][key], values, strict=True):
            assert side_by_side.difference(our_value, value) < TOLERANCE, key
