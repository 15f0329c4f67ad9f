"""`BytePSStrategy(staleness=)`: every change counts once, and nobody waits for the slow."""

import os

import pytest

from tests import workers

PROGRAM = os.path.join(os.path.dirname(__file__), "staleness_programs.py")
COUNTS = [
    {"staleness": 1},
    {"staleness": 3, "steps_per_execution": 2},
    {"staleness": "unbounded", "jit_compile": True},
]


_scenario = workers.scenario


ZERO, DEFAULT = _scenario("synchronous", staleness=0), _scenario("synchronous")
TRAININGS = [_scenario("trains", staleness=staleness) for staleness in (2, "unbounded")]


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    scenarios = [
        *(_scenario("counts", **arguments) for arguments in COUNTS),
        "does_not_wait",
        *TRAININGS,
        "goes_on_after_an_exception",
        ZERO,
        DEFAULT,
        "refusals",
    ]
    folder = str(tmp_path_factory.mktemp("staleness"))
    return workers.run(PROGRAM, scenarios, 2, STALENESS_FOLDER=folder)


@pytest.fixture(scope="module")
def three():
    return workers.run(PROGRAM, [_scenario("counts", **COUNTS[0])], 3)


def _check_counts(results):
    for start, first, second, third, after_set_weights in results:
        assert (start, first, second, third, after_set_weights) == (1, 8, 16, 24, 8)


@pytest.mark.parametrize("arguments", COUNTS)
def test_changes_of_two_workers_add_up(group, arguments):
    _check_counts(group[_scenario("counts", **arguments)])


def test_changes_of_three_workers_add_up(three):
    _check_counts(three[_scenario("counts", **COUNTS[0])])


def test_a_slow_worker_holds_nobody_up(group):
    (seen, after), (_, its_after) = group["does_not_wait"]
    # Of the slow one's steps one at most is in what the fast one has after all of its own.
    assert seen in (1 - 8, 1 - 8 - 1)
    assert after == its_after == 1 - 2 * 8


@pytest.mark.parametrize("scenario", TRAININGS)
def test_workers_agree_where_they_come_together(group, scenario):
    (found, predicted), other = group[scenario]
    assert other == (found, predicted)
    assert found[1][1][-1] < found[0][1][0]  # it learns


def test_it_goes_on_after_an_exception(group):
    results = group["goes_on_after_an_exception"]
    for said, fell, weight in results:
        assert said == "'of the program'" and fell == 8
        assert weight == results[0][2]


def test_without_staleness_it_is_synchronous(group):
    assert group[ZERO] == group[DEFAULT]
    assert group[ZERO][0] == group[ZERO][1]


def test_refusals_name_the_cure(group):
    for said in group["refusals"]:
        for text, name in zip(said, ("cross_step", "backup_workers", "compression"), strict=False):
            assert f"{name} is set" in text and "choose one of them" in text
        assert "local_steps is 4" in said[3]
        assert all("staleness must be" in text for text in said[4:]) and len(said) == 7
