"""Gradients that are accumulated where an epoch ends: the next training, a saved model and another
number of workers go on from them as one process does."""

import json
import os
import shutil

import pytest
import workers

from tests import side_by_side

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(900)

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


def _run(folder, size):
    plain = {"plain": True} if size == 0 else {}
    scenarios = {case: _scenario(case, folder, **plain) for case in CASES}
    group = workers.run(PROGRAM, list(scenarios.values()), size)
    return {case: lambda s=scenario: group[s] for case, scenario in scenarios.items()}


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    return _run(tmp_path_factory.mktemp("single"), 0)


@pytest.fixture(scope="module")
def folder_of_two(tmp_path_factory):
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def two(folder_of_two):
    return _run(folder_of_two, 2)


@pytest.fixture(scope="module")
def three(two, folder_of_two, tmp_path_factory):
    """Goes on from the backups of two workers."""
    folder = tmp_path_factory.mktemp("three")
    for kept in folder_of_two.glob("* kept"):
        shutil.copytree(kept, folder / kept.name.removesuffix(" kept"))
    assert len(list(folder.iterdir())) == 2
    return _run(folder, 3)


@pytest.mark.parametrize("size", ["two", "three"])
@pytest.mark.parametrize("case", CASES)
def test_it_goes_on_as_in_one_process(request, single, case, size):
    (expected,) = single[case]()
    results = request.getfixturevalue(size)[case]()
    assert all(result == results[0] for result in results)
    for key, values in expected.items():
        for ours, theirs in zip(results[0][key], values, strict=True):
            assert side_by_side.difference(ours, theirs) < TOLERANCE, key
