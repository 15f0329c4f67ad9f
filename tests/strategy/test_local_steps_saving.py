"""The outer momentum of local steps is saved and restored where the optimizer's state is."""

import os

import numpy as np
import pytest

from tests import workers
from tests.selection import asked_values, some_extended

PROGRAM = os.path.join(os.path.dirname(__file__), "local_steps_saving_programs.py")
WAYS = ["backup", "callback.keras", "saved.keras", "saved.weights.h5", "checkpoint"]


_scenario = workers.scenario


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return os.fspath(tmp_path_factory.mktemp("saved"))


@pytest.fixture(scope="module")
def first(folder):
    scenarios = [
        "goes_through",
        _scenario("saves", folder=folder),
        _scenario("outer_sync", folder=folder, steps=8),
        _scenario("outer_sync", folder=folder, steps=4),
    ]
    return workers.run(PROGRAM, scenarios, 2)


@pytest.fixture(scope="module")
def again(request, folder, first):
    first[_scenario("saves", folder=folder)]  # before the others read
    ways = asked_values(request, "how", test_a_restart_between_rounds_changes_no_bit)
    scenarios = [
        _scenario("restores", folder=folder, how=how) for how in [*ways, "weights_alone.npz"]
    ]
    others = [
        _scenario("is_read_without_local_steps", folder=folder),
        _scenario("refuses_other_weights", folder=folder),
        _scenario("outer_sync", folder=folder, steps=4, first=4),
    ]
    return workers.run(PROGRAM, [*scenarios, *others], 2)


@pytest.mark.parametrize("how", some_extended(WAYS, ["callback.keras", "saved.weights.h5"]))
def test_a_restart_between_rounds_changes_no_bit(first, again, folder, how):
    expected, momenta = first["goes_through"][0]
    _, saved = first[_scenario("saves", folder=folder)][0]
    assert any(np.frombuffer(each).any() for each in saved)
    for seen, weights, last in again[_scenario("restores", folder=folder, how=how)]:
        assert seen == saved
        assert weights == expected and last == momenta


def test_weights_alone_begin_without_momentum(first, again, folder):
    for seen, weights, _ in again[_scenario("restores", folder=folder, how="weights_alone.npz")]:
        assert not any(np.frombuffer(each).any() for each in seen)
        assert weights != first["goes_through"][0][0]


def test_files_are_read_with_and_without_local_steps(again, folder):
    for is_same, steps in again[_scenario("is_read_without_local_steps", folder=folder)]:
        assert is_same and steps == 10


def test_a_file_of_other_weights_is_an_error_and_changes_nothing(again, folder):
    for said, is_same in again[_scenario("refuses_other_weights", folder=folder)]:
        assert "the saved outer_rounds has the shape (4,), and that of this model (2,)" in said
        assert is_same


def test_other_numbers_of_workers_and_fragments_go_on(first, folder):
    first[_scenario("saves", folder=folder)]
    scenario = _scenario("restores", folder=folder, how="backup", settings={"fragments": 1})
    saved = first[_scenario("saves", folder=folder)][0][1]
    results = workers.run(PROGRAM, [scenario], 3)[scenario]
    for seen, weights, _ in results:
        assert seen == saved and weights == results[0][1]


def test_outer_sync_goes_on_from_a_checkpoint(first, again, folder):
    through = first[_scenario("outer_sync", folder=folder, steps=8)]
    assert again[_scenario("outer_sync", folder=folder, steps=4, first=4)] == through
