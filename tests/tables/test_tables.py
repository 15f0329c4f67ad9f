"""Tables whose rows are spread over the workers, compared with Keras's embeddings."""

import json
import os

import numpy as np
import pytest

from tests import workers
from tests.selection import asked_values, some_extended

PROGRAM = os.path.join(os.path.dirname(__file__), "tables_programs.py")
CASES = (("sum", "SGD"), ("mean", "Adagrad"), (None, "Adam"))
_NUMBERS = range(len(CASES))
# Of files. The others have the same contents as the first.
KINDS, EXTENDED_KINDS = ["model.keras", "checkpoint", "backup"], ["kept.keras", "weights"]


_scenario = workers.scenario


def _training(function, case):
    return _scenario(function, combiner=case[0], optimizer=case[1])


@pytest.fixture(scope="module")
def cases(request):
    """The first is compared with other numbers of workers, too."""
    numbers = asked_values(
        request, "number", test_workers_train_as_one_process_with_plain_embeddings
    )
    return [CASES[number] for number in sorted({0, *numbers})]


@pytest.fixture(scope="module")
def three(folder, cases):
    cases = [_training("spread", case) for case in cases]
    scenarios = [_scenario("saves", folder=folder), *cases, "bytes_of_a_lookup"]
    return workers.run(PROGRAM, scenarios, 3)


@pytest.fixture(scope="module")
def loading(folder, three):
    """How these kinds of files are loaded."""
    path = three[_scenario("saves", folder=folder)][0][0]
    return lambda kinds: _scenario("loads", folder=folder, path=path, kinds=kinds)


@pytest.fixture(scope="module")
def two(request, loading):
    loops = asked_values(request, "is_eager", test_a_loop_of_the_programs_own_trains_as_with_plain)
    scenarios = [
        loading(KINDS),
        *(_scenario("loop", is_plain=False, is_eager=is_eager) for is_eager in loops),
        "freed",
        "refused",
    ]
    return workers.run(PROGRAM, scenarios, 2)


@pytest.fixture(scope="module")
def alone(cases):
    cases = [_training("plain", case) for case in cases]
    others = [
        _training("spread", CASES[0]),
        _scenario("loop", is_plain=True),
        "inputs",
        "uncompiled",
    ]
    return workers.run(PROGRAM, [*cases, *others], 1)


@pytest.mark.parametrize("number", some_extended(_NUMBERS, [1, 2]))
def test_workers_train_as_one_process_with_plain_embeddings(three, alone, number):
    _compare(alone, CASES[number], three[_training("spread", CASES[number])])


def test_one_process_does_so_too(alone):
    _compare(alone, CASES[0], alone[_training("spread", CASES[0])])


@pytest.mark.extended
def test_two_workers_do_so_too(alone):
    scenario = _training("spread", CASES[0])
    _compare(alone, CASES[0], workers.run(PROGRAM, [scenario], 2)[scenario])


def _compare(alone, case, results):
    tables, numbers = alone[_training("plain", case)][0]
    for its_tables, (losses, evaluated, predicted), _ in results:
        for name, table in tables.items():
            np.testing.assert_allclose(its_tables[name], table, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(losses, numbers[0], rtol=1e-9)
        np.testing.assert_allclose(evaluated, numbers[1], rtol=1e-9)
        np.testing.assert_allclose(predicted, numbers[2], rtol=1e-9, atol=1e-12)
    assert numbers[0][1] < numbers[0][0]


def test_each_worker_has_its_share_of_the_rows(three):
    for _, _, rows in three[_training("spread", CASES[0])]:
        assert rows == {"tables/rows_of_4": (19, 4), "tables/rows_of_2": (1, 2)}


def test_different_rows_of_other_workers_travel_once(three):
    for moved, expected in three["bytes_of_a_lookup"]:
        assert moved == expected


def test_files_have_whole_tables_and_states(three, two, loading):
    _check_files(three, two, loading(KINDS))


@pytest.mark.extended
@pytest.mark.parametrize("number", [1, 2])
def test_all_kinds_of_files_have_them(three, loading, number):
    scenario = loading([*KINDS, *EXTENDED_KINDS])
    _check_files(three, workers.run(PROGRAM, [scenario], number), scenario)


def _check_files(three, group, loading):
    saved = json.loads(loading.partition("=")[2])
    _, before, after = three[_scenario("saves", folder=saved["folder"])][0]
    for found in group[loading]:
        assert len(found) == len(saved["kinds"])
        for its_before, its_after in found:
            for name, table in before.items():
                np.testing.assert_array_equal(its_before[name], table)
                np.testing.assert_allclose(its_after[name], after[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("is_eager", some_extended([False, True], [True]))
def test_a_loop_of_the_programs_own_trains_as_with_plain(two, alone, is_eager):
    losses, tables = alone[_scenario("loop", is_plain=True)][0]
    for its_losses, its_tables in two[_scenario("loop", is_plain=False, is_eager=is_eager)]:
        np.testing.assert_allclose(its_losses, losses, rtol=1e-9)
        np.testing.assert_allclose(its_tables["words"], tables["words"], rtol=1e-9, atol=1e-12)


def test_what_does_not_go_with_spread_tables_is_refused(two):
    for messages in two["refused"]:
        assert "global_clipnorm=1.0 does not work with Dist" in messages["clipped"]
        assert "gradient_accumulation_steps=2 does not work" in messages["accumulating"]
        assert "local_steps=" in messages["local_steps"] and "does not work" in str(messages)
        assert "make the layer and its model in the strategy's scope" in messages["no strategy"]
        assert "are spread over 2 workers, and a SavedModel is for one" in messages["export"]


def test_a_checkpoint_of_a_model_without_an_optimizer_has_its_tables(alone):
    expected, found = alone["uncompiled"][0]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("index", some_extended([-1, 50], [-1]))
def test_an_index_out_of_range_on_one_worker_ends_all(index):
    scenario = _scenario("out_of_range", index=index)
    messages = workers.run(PROGRAM, [scenario], 2)[scenario]
    assert any(
        "the feature title has an index that is not in the table words, which has 50 rows"
        in message
        for message in messages
    ), messages
    assert "no error" not in messages


def test_ragged_and_sparse_inputs_and_masks_give_the_same(alone):
    expected = [[4, 5], [0, 0], [4, 5]]
    for found in alone["inputs"][0]:
        np.testing.assert_array_equal(found, expected)


def test_rows_are_freed_with_their_model(two):
    for left in two["freed"]:
        assert left == [[], []]
