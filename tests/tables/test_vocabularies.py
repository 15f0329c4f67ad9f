"""Tables whose rows are given to keys: on several workers as in one process, and as in Keras."""

import os

import numpy as np
import pytest

from tests import workers
from tests.selection import asked_values, some_extended

pytestmark = pytest.mark.time_limit(900)

PROGRAM = os.path.join(os.path.dirname(__file__), "vocabularies_programs.py")
CASES = ("Adagrad", "Adam")
STEPS = 3  # of one call, on two workers
# Files that two workers have saved: what they read themselves, and what one process reads.
READ_BY_TWO, READ_ALONE = ["model.keras"], ["checkpoint", "backup"]
# Some have the same contents as others.
KINDS = [*READ_BY_TWO, *READ_ALONE, "kept.keras", "weights"]


_scenario = workers.scenario
# Of Keras's embeddings with Adagrad.
COUNTERPART = _scenario("counterpart", optimizer="Adagrad")


def _training(optimizer, steps=1):
    return _scenario("trains", optimizer=optimizer, steps_per_execution=steps)


@pytest.fixture(scope="module")
def cases(request):
    """Those that are asked for, and the first, which other tests look at."""
    asked = asked_values(request, "case", test_three_workers_train_as_one_process)
    return list(dict.fromkeys([CASES[0], *asked]))


def _loading(folder, kinds):
    return _scenario("loads", folder=folder, kinds=kinds)


@pytest.fixture(scope="module")
def three(cases):
    return workers.run(PROGRAM, [_training(case) for case in cases], 3)


@pytest.fixture(scope="module")
def two(folder):
    scenarios = [
        _scenario("saves", folder=folder),
        _loading(folder, READ_BY_TWO),
        "sets",
        "mixed",
        "freed",
        _training("Adagrad", STEPS),
    ]
    return workers.run(PROGRAM, scenarios, 2)


@pytest.fixture(scope="module")
def saved(two, folder):
    """The tables when files were written, and after training on."""
    path, before, after = two[_scenario("saves", folder=folder)][0]
    assert path == f"{folder}/checkpoint-1"
    return before, after


@pytest.fixture(scope="module")
def alone(folder, saved, cases):
    others = [_loading(folder, READ_ALONE), _scenario("plain", optimizer="Adagrad")]
    others += [COUNTERPART, "begins_anew", "mixed", "refused"]
    return workers.run(PROGRAM, [*map(_training, cases), *others], 1)


@pytest.fixture(scope="module")
def of_number(request):
    """What this number of workers show of rows that keys get and lose."""
    if request.param == 1:
        return request.getfixturevalue("alone")
    return workers.run(PROGRAM, [COUNTERPART, "begins_anew"], request.param)


def _compare(found, expected, **tolerance):
    tolerance = {"rtol": 1e-9, "atol": 1e-12, **tolerance}
    assert sorted(found) == sorted(expected)
    for name, (keys, rows, default) in expected.items():
        np.testing.assert_array_equal(found[name][0], keys)
        np.testing.assert_allclose(found[name][1], rows, **tolerance)
        np.testing.assert_allclose(found[name][2], default, **tolerance)


@pytest.mark.extended
@pytest.mark.parametrize("case", CASES)
def test_three_workers_train_as_one_process(three, alone, case):
    _compare_trainings(three[_training(case)], alone[_training(case)][0])


def test_two_workers_do_so_with_several_steps_of_one_call(two, alone):
    _compare_trainings(two[_training("Adagrad", STEPS)], alone[_training("Adagrad")][0])


def _compare_trainings(of_workers, expected):
    losses, evaluated, predicted, tables, *_ = expected
    for its in of_workers:
        np.testing.assert_allclose(its[0], losses, rtol=1e-9)
        np.testing.assert_allclose(its[1], evaluated, rtol=1e-9)
        np.testing.assert_allclose(its[2], predicted, rtol=1e-9, atol=1e-12)
        _compare(its[3], tables)
    assert losses[1] < losses[0]


def test_rare_and_expired_keys_have_no_rows_and_the_default_row_is_trained(alone):
    tables = alone[_training("Adagrad")][0][3]
    assert 20 < len(tables["people"][0]) < 60  # of 80
    assert len(tables["shops"][0]) == 22 and not tables["shops"][2].any()  # of 25
    assert np.all(tables["people"][2] != 0)


def test_evaluate_and_predict_change_nothing(two, alone):
    for group, steps in ((two, STEPS), (alone, 1)):
        for *_, changed in group[_training("Adagrad", steps)]:
            assert len(changed) == 10 and not any(changed)


def test_each_worker_has_its_share_of_the_rows(two, alone):
    """Or as much memory as another one has: of four blocks of people, and one of shops."""
    assert _rows(alone[_training("Adagrad")]) == [4 * 1392 + 22]
    assert _rows(two[_training("Adagrad", STEPS)]) == [2 * 1392 + 22] * 2


@pytest.mark.extended
def test_so_has_each_of_three(three):
    assert _rows(three[_training("Adagrad")]) == [2 * 1392] * 3


def _rows(trainings):
    return [shapes["tables/rows_of_4"][0] for _, _, _, _, shapes, _ in trainings]


@pytest.mark.parametrize("of_number", some_extended([1, 2], [2]), indirect=True)
def test_rows_are_those_of_plain_embeddings_if_every_key_gets_one(of_number, alone):
    losses, tables = alone[_scenario("plain", optimizer="Adagrad")][0]
    for its_losses, found in of_number[COUNTERPART]:
        np.testing.assert_allclose(its_losses, losses, rtol=1e-9)
        for name, (keys, rows, default) in found.items():
            assert keys.tolist() == sorted(tables[name])
            expected = [tables[name][key] for key in keys.tolist()]
            np.testing.assert_allclose(rows, expected, rtol=1e-9, atol=1e-12)
            assert not default.any()


def test_files_have_keys_and_states(two, alone, saved, folder):
    _check_files(two, saved, folder, READ_BY_TWO)
    _check_files(alone, saved, folder, READ_ALONE)


@pytest.mark.extended
@pytest.mark.parametrize("number", [1, 2, 3])
def test_all_kinds_of_files_have_them(saved, folder, number):
    _check_files(workers.run(PROGRAM, [_loading(folder, KINDS)], number), saved, folder, KINDS)


def _check_files(group, saved, folder, kinds):
    before, after = saved
    assert len(before["people"][0]) > 10
    for found in group[_loading(folder, kinds)]:
        assert len(found) == len(kinds)
        for its_before, its_after in found:
            _compare(its_before, before, rtol=0, atol=0)
            _compare(its_after, after)


def test_weights_and_tables_can_be_set_back(two):
    for tables, found, losses, again in two["sets"]:
        for its in found:
            for (keys, rows, _), name in zip(tables, its, strict=True):
                np.testing.assert_array_equal(its[name][0], keys)
                np.testing.assert_array_equal(its[name][1], rows)
        np.testing.assert_allclose(again, losses, rtol=1e-9)


@pytest.mark.parametrize("of_number", some_extended([1, 2], [2]), indirect=True)
def test_a_row_that_another_key_gets_begins_anew(of_number):
    for found, expected in of_number["begins_anew"]:
        assert found[0].tolist() == expected[0].tolist() == [2]
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-12)


def test_mixed_precision_trains_the_same(two, alone):
    losses, dtypes, tables = alone["mixed"][0]
    assert dtypes == {"bfloat16"} and losses[1] < losses[0]
    for its_losses, its_dtypes, its_tables in two["mixed"]:
        assert its_dtypes == dtypes
        np.testing.assert_allclose(its_losses, losses, rtol=0.02)
        for name, (keys, rows, _) in tables.items():
            np.testing.assert_array_equal(its_tables[name][0], keys)
            assert its_tables[name][1].dtype == rows.dtype == np.float32
            np.testing.assert_allclose(its_tables[name][1], rows, rtol=0.1, atol=0.03)


def test_rows_are_freed_with_their_model(two):
    for left in two["freed"]:
        assert left == [[], []]


@pytest.mark.parametrize("number", some_extended([1, 2], [1]))
def test_a_table_that_is_full_says_so_and_keeps_its_rows(number):
    results = workers.run(PROGRAM, ["full"], number)["full"]
    assert any(
        "the table 'shops' is full: 8 keys of this step need a row" in message
        and "a larger min_count, or when_full='evict_oldest'" in message
        for message, *_ in results
    ), results
    for message, rows, keys in results:
        assert message != "no error"
        assert rows == keys == [True], message


def test_what_does_not_go_with_vocabularies_is_refused(alone):
    for messages in alone["refused"]:
        for name, message in {
            "servers": "has placement='servers' and a vocabulary, which only tables on workers",
            "no optimizer": "the table 'shops' has a vocabulary and no optimizer: give its",
            "initializer": "is a Orthogonal, whose rows a vocabulary cannot make",
            "kind": "must be a tf_byteps.keras.layers.DynamicVocabulary, got int",
            "floats": "the input of the feature 'shop' has dtype float64, and keys of a",
            "strings": "has dtype string, and keys of a DynamicVocabulary are integers",
            "compiled": "DistributedEmbedding with a DynamicVocabulary does not work in a function",
            "array": "has a DynamicVocabulary: give a tuple of keys and rows, got ndarray",
            "shapes": "got arrays of shape (3,), int64, and (2, 2)",
            "twice": "the keys for the table 'shops' are not different: give each once",
            "many": "the table 'shops' has too few rows for 5 keys",
            "nothing": "the table 'shops' is missing, got []",
            "export": "which a SavedModel cannot have: make a model of keras.layers.IntegerLookup",
        }.items():
            assert message in messages[name], name
