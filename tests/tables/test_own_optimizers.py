"""Tables that have an optimizer of their own, compared with a loop that calls each by hand."""

import json
import os

import numpy as np
import pytest

from tests import workers
from tests.selection import asked_values, some_extended

pytestmark = pytest.mark.time_limit(420)

PROGRAM = os.path.join(os.path.dirname(__file__), "own_optimizers_programs.py")
CASES = (
    ("Adagrad", "momentum"),
    ("LazyAdam", "Adam"),
    ("RowWiseAdagrad", "clipped"),
    ("Adagrad", "RowWiseAdagrad"),
    ("RowWiseAdagrad", "scaled"),
)
_EXTENDED = (CASES[1], *CASES[3:])
# Of files. The other has the same contents as the first.
KINDS, EXTENDED_KINDS = ["model.keras", "weights", "checkpoint"], ["kept.keras"]


_scenario = workers.scenario


def _training(function, case):
    return _scenario(function, own=case[0], optimizer=case[1])


@pytest.fixture(scope="module")
def cases(request):
    """Those that are asked for, and the first, whose states are looked at."""
    asked = asked_values(request, "case", test_each_table_is_updated_by_its_own_optimizer)
    return list(dict.fromkeys([CASES[0], *asked]))


@pytest.fixture(scope="module")
def cases_alone(request):
    asked = asked_values(request, "case", test_so_is_it_in_one_process)
    return list(dict.fromkeys([CASES[0], *asked]))


@pytest.fixture(scope="module")
def two(folder, cases):
    trainings = [_training("spread", case) for case in cases]
    return workers.run(PROGRAM, [*trainings, _scenario("saves", folder=folder), "refused"], 2)


@pytest.fixture(scope="module")
def loading(folder, two):
    """How these kinds of files are loaded."""
    path = two[_scenario("saves", folder=folder)][0][0]
    return lambda kinds: _scenario("loads", folder=folder, path=path, kinds=kinds)


@pytest.fixture(scope="module")
def alone(loading, cases, cases_alone):
    trainings = [_training("reference", case) for case in dict.fromkeys([*cases, *cases_alone])]
    trainings += [_training("spread", case) for case in cases_alone]
    return workers.run(PROGRAM, [*trainings, loading(KINDS), "given_is_kept"], 1)


def _compare(found, expected):
    (tables, dense), (its_tables, its_dense) = found, expected
    assert sorted(tables) == sorted(its_tables)
    for name, table in tables.items():
        np.testing.assert_allclose(table, its_tables[name], rtol=1e-9, atol=1e-12)
    for weights, others in zip(dense, its_dense, strict=True):
        np.testing.assert_allclose(weights, others, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", some_extended(CASES, _EXTENDED), ids=str)
def test_each_table_is_updated_by_its_own_optimizer(two, alone, case):
    _check_trained(two, alone, case)


@pytest.mark.parametrize("case", some_extended(CASES, CASES[1:]), ids=str)
def test_so_is_it_in_one_process(alone, case):
    _check_trained(alone, alone, case)


def _check_trained(group, alone, case):
    tables, dense, losses = alone[_training("reference", case)][0]
    trained = group[_training("spread", case)]
    for its_tables, its_dense, its_losses, _, _, steps in trained:
        _compare((its_tables, its_dense), (tables, dense))
        np.testing.assert_allclose(its_losses, losses, rtol=1e-9)
        assert set(steps.values()) == {10}  # two epochs of five batches
    assert losses[1] < losses[0]


def test_states_are_of_one_optimizer_and_a_workers_own_rows(two, alone):
    case = CASES[0]
    for results, rows in ((two, 27), (alone, 53)):  # of words and shops
        _, _, _, of_tables, of_model, _ = results[_training("spread", case)][0]
        assert of_tables["words"] == of_tables["shops"]
        assert [shape for _, shape in of_tables["words"]] == [(), (), (rows, 4)]
        assert not any("rows_of_4_momentum" in path for path in of_model)
        assert sum("rows_of_4_1_momentum" in path for path in of_model) == 1  # users


def test_files_have_the_states_of_tables_own_optimizers(two, alone, loading):
    _check_files(two, alone, loading(KINDS))


@pytest.mark.extended
def test_three_workers_read_all_kinds_of_them_too(two, loading):
    scenario = loading([*KINDS, *EXTENDED_KINDS])
    _check_files(two, workers.run(PROGRAM, [scenario], 3), scenario)


def _check_files(two, group, loading):
    saved = json.loads(loading.partition("=")[2])
    _, before, after = two[_scenario("saves", folder=saved["folder"])][0]
    for found in group[loading]:
        assert len(found) == len(saved["kinds"])
        for its_before, its_after in found:
            _compare(its_before, before)
            _compare(its_after, after)


def test_what_a_table_cannot_have_is_refused(two):
    for messages in two["refused"]:
        assert (
            "gradient_accumulation_steps=2 does not work with tables that have an optimizer"
            in (messages["accumulating"])
        )
        assert "ValueError: optimizer of the table 'words' has use_ema=True" in messages["ema"]
        assert "is a LossScaleOptimizer that wraps another" in messages["wrapped"]
        assert "is a SGD that wraps another" in messages["distributed"]
        assert "is 'adagrat', and Keras has no such name" in messages["unknown"]
        assert "TypeError" in messages["number"] and "got float" in messages["number"]


def test_a_programs_optimizer_is_not_changed(alone):
    found, built, variables = alone["given_is_kept"][0]
    assert [each[0] for each in found] == [True, True] and not built and variables == 2
    assert [each[2] for each in found] == [3, 3]
    np.testing.assert_allclose([each[1] for each in found], 0.3, rtol=1e-6)
