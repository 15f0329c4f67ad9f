"""Outer rounds that do not wait for all workers, with real workers and a server."""

import os

import numpy as np
import pytest

from tests import workers
from tests.selection import asked_values, some_extended

PROGRAM = os.path.join(os.path.dirname(__file__), "quorum_programs.py")
WORKERS = 3
FITS = {
    "average": {"quorum": 2},
    "diloco, fragments": {"quorum": 2, "outer": "diloco", "fragments": 2, "grace": 0.01},
    "delay": {"quorum": 2, "fragments": 2, "delay": 2},
    "int8": {"quorum": 2, "compression": "int8"},
}


_scenario = workers.scenario


SLOW = {
    "short windows": _scenario("slow", steps=64, local_steps=8, settings={"grace": 0}),
    "adaptive": _scenario("slow", steps=64, local_steps=8, settings={}),
    "long windows": _scenario("slow", steps=64, local_steps=8, settings={"grace": 20}),
    "delay": _scenario("slow", steps=64, local_steps=8, settings={"delay": 4}),
}
UNEQUAL = [_scenario("unequal", fragments=fragments) for fragments in (1, 2)]

OWN_DATA = [_scenario("own_data", batches=batches) for batches in ((12, 30, 20), (12, 30, 0))]


@pytest.fixture(scope="module")
def group(request, tmp_path_factory):
    late = _scenario("late_is_added", folder=str(tmp_path_factory.mktemp("late")))
    empty = _scenario("late_to_an_empty_round", folder=str(tmp_path_factory.mktemp("empty")))
    sees = _scenario("sees", folder=str(tmp_path_factory.mktemp("sees")))
    folder = str(tmp_path_factory.mktemp("goes"))
    goes_on = [
        _scenario("goes_on", folder=folder, steps=8),
        _scenario("goes_on", folder=folder, steps=4, first=4),
    ]
    cases = asked_values(request, "case", test_a_slow_worker_makes_fewer_steps_not_fewer_rounds)
    slow = [SLOW[case] for case in cases]
    scenarios = [late, empty, *slow, *UNEQUAL, sees, *goes_on, "equals_all", "refusals"]
    scenarios += asked_values(request, "scenario", test_data_of_different_lengths)
    cases = asked_values(request, "case", test_fit_ends_when_a_quorum_has_ended)
    scenarios += [_scenario("fits", settings=FITS[case]) for case in cases]
    results = workers.run(PROGRAM, scenarios, WORKERS)
    return results, {"late": late, "empty": empty, "sees": sees, "goes on": goes_on}


def test_a_late_change_is_in_the_next_round(group):
    results, named = group
    found = results[named["late"]]
    tables = found[0][0]
    assert tables == found[1][0] == found[2][0]  # the same rounds, in the same order
    assert tables[0][0] == [1, 1, 0] and found[2][4] >= 1
    # Rows say how much a change counts: those that came late count again where they are in.
    assert tables[0][1][2] == 0
    assert tables[1][0][2] == 1 and tables[1][1][2] == 3 + 3, "of two steps of three rows each"
    # Nothing is lost, nothing counts twice.
    rows = [sum(table[1]) for table in tables]
    assert sum(rows) == sum(r for each in found for r, _ in each[1]) == 3 * (1 + 2 + 3)
    weights = [np.zeros(5), *(w[0] for w in found[0][2])]
    all_rounds = sum(
        total * (before - after)
        for total, before, after in zip(rows, weights, weights[1:], strict=False)
    )
    all_changes = sum(r * moved[0] for each in found for r, moved in each[1])
    np.testing.assert_allclose(all_rounds, all_changes, rtol=1e-12)
    assert found[0][3] == found[1][3] == found[2][3]


def test_a_change_that_is_late_for_a_round_without_rows_is_not_lost(group):
    results, named = group
    found = results[named["empty"]]
    tables, rounds, _, weights = found[0]
    assert all(each[0] == tables and each[3] == weights for each in found)
    assert sum(sum(table[1]) for table in tables) == 1 + 1 + 2
    np.testing.assert_allclose(rounds, np.sum([each[2] for each in found], axis=0), rtol=1e-12)


@pytest.mark.parametrize("case", some_extended(SLOW, ["short windows", "delay"]))
def test_a_slow_worker_makes_fewer_steps_not_fewer_rounds(group, case):
    results, _ = group
    found = results[SLOW[case]]
    (_, tables, weights, rounds), _, slow = found
    assert all(each[1:] == [tables, weights, rounds] for each in map(list, found))
    assert sorted(each[0] for each in found)[1:] == [64, 64] and 0 < slow[0] < 64
    working = [table for table in tables if not any(table[2])]
    assert len(working) >= 64 // 8 - 1
    # Who has not been in a round is in the next one.
    for before, after in zip(tables, tables[1:], strict=False):
        assert all(a or b for a, b in zip(before[0], after[0], strict=True))
    if case == "long windows":
        assert sum(table[0][2] for table in working) >= len(working) - 1


@pytest.mark.parametrize("scenario", UNEQUAL)
def test_all_changes_are_in_whatever_steps_each_makes(group, scenario):
    results, _ = group
    found = results[scenario]
    weights, rounds, _, fragments, tables = found[0]
    assert all(each[0] == weights and each[1] == rounds for each in found)
    assert all(each[3] == fragments and each[4] == tables for each in found)
    np.testing.assert_allclose(rounds, np.sum([each[2] for each in found], axis=0), rtol=1e-12)
    for fragment in set(fragments):  # each sees all rows once: two of each step
        its = [t for number, t in zip(fragments, tables, strict=True) if number == fragment]
        assert np.sum([table[1] for table in its]) == 2 * (1 + 9 + 30 + 20 + 1 + 1)


def test_callbacks_evaluations_and_files_see_the_global_weights(group):
    results, named = group
    found = results[named["sees"]]
    assert all(each == found[0] for each in found)
    after_saves, after_epochs, losses, evaluated, read = found[0]
    assert len(set(after_epochs)) == len(losses) == 2
    assert evaluated == pytest.approx(losses[-1], rel=1e-6)
    # Files are written after 7, 14 and 21 batches; an epoch has 20.
    assert read[:2] == after_saves
    assert len(set(read)) == 3


def test_a_restart_within_a_round_changes_nothing(group):
    results, named = group
    through, again = (results[scenario] for scenario in named["goes on"])
    assert through[0] == through[1] == through[2]
    for each, expected in zip(again, through, strict=True):  # but for the order of sums
        np.testing.assert_allclose(each[0], expected[0], rtol=1e-12)
        np.testing.assert_allclose(each[1], expected[1], rtol=1e-12)


@pytest.mark.parametrize("case", some_extended(FITS, ["average", "delay", "int8"]))
def test_fit_ends_when_a_quorum_has_ended(group, case):
    results, _ = group
    found = results[_scenario("fits", settings=FITS[case])]
    weights, losses, made, warned = found[0]
    assert all(each[0] == weights and each[1] == losses for each in found)
    # Optimizers count their own steps. That workers drift apart may be said of so short a training.
    assert not [each for each in warned if "train different models" in each]
    assert losses[-1] < losses[0]
    assert found[2][2] < made


@pytest.mark.parametrize("scenario", some_extended(OWN_DATA, OWN_DATA[:1]))
def test_data_of_different_lengths(group, scenario):
    """No worker waits for others in its steps; one without data has the others' weights."""
    results, _ = group
    steps, weights, said = zip(*results[scenario], strict=True)
    assert steps[0] == 2 * 12 and steps[1] <= 2 * 30
    assert len(set(weights)) == 1
    assert all("give fit the tf.data.Dataset itself" in each for each in said)


def test_a_quorum_of_all_is_no_quorum(group):
    results, _ = group
    for without, with_quorum in results["equals_all"]:
        assert np.allclose(
            np.frombuffer(without, "f4"), np.frombuffer(with_quorum, "f4"), rtol=0, atol=1e-5
        )


def test_two_workers_of_two_have_the_same_bits():
    for without, with_quorum in workers.run(PROGRAM, ["equals_all"], 2)["equals_all"]:
        assert without == with_quorum


def test_refusals_say_what_to_do(group):
    results, _ = group
    for said in results["refusals"]:
        assert "quorum is 9, and the job has 3 workers" in said[0]
        assert "grace is 1.0, but quorum is not set" in said[1]
        assert "powersgd" in said[2].lower() and "two exchanges" in said[2]
        assert "quorum is 9, and the job has 3 workers" in said[3]
        assert "quorum is 2" in said[4] and "local_steps is not set" in said[4]
        assert "quorum is 2" in said[5] and "local_steps is not set" in said[5]
        assert "staleness is 3 and local_steps is 4" in said[6]
        assert "two trainings with a quorum" in said[7] and "one OuterSync" in said[7]
