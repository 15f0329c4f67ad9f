"""Tables on the servers, compared with Keras's embeddings (protocol rule 38)."""

import os

import numpy as np
import pytest

from tests import workers
from tests.selection import asked_values, some_extended

pytestmark = pytest.mark.time_limit(620)

PROGRAM = os.path.join(os.path.dirname(__file__), "on_servers_programs.py")
_scenario = workers.scenario
OPTIMIZERS = ("SGD", "Adagrad", "RowWiseAdagrad", "LazySGD", "LazyAdam")
# What servers compute for each, test_server_rules.py compares every day.
_EXTENDED = ("SGD", "Adagrad", "RowWiseAdagrad", "LazySGD")
_INDICES = [-1, 50]  # out of range


@pytest.fixture(scope="module")
def asked_optimizers(request):
    asked = asked_values(
        request, "optimizer", test_workers_train_as_one_process_with_plain_embeddings
    )
    return list(dict.fromkeys(["LazyAdam", *asked]))


@pytest.fixture(scope="module")
def indices(request):
    return asked_values(request, "index", test_an_index_out_of_range_changes_no_row)


@pytest.fixture(scope="module")
def two(folder, asked_optimizers, indices):
    cases = [_scenario("trained", optimizer=each) for each in asked_optimizers]
    others = [
        _scenario("loop", is_plain=False),
        "initial_rows",
        "bad_tables",
        "same_names",
        _scenario("saves", folder=folder),
        _scenario("crosses", folder=folder),
        _scenario("bad_rows", indices=indices),
    ]
    return workers.run(PROGRAM, [*cases, *others], 2)


@pytest.fixture(scope="module")
def loading(folder, two):
    path = two[_scenario("saves", folder=folder)][0][0]
    return _scenario("loads", folder=folder, path=path)


@pytest.fixture(scope="module")
def alone(loading, asked_optimizers):
    cases = [_scenario("plain", optimizer=each) for each in asked_optimizers]
    return workers.run(PROGRAM, [*cases, _scenario("loop", is_plain=True), loading], 1)


@pytest.mark.parametrize("optimizer", some_extended(OPTIMIZERS, _EXTENDED))
def test_workers_train_as_one_process_with_plain_embeddings(two, alone, optimizer):
    tables, numbers = alone[_scenario("plain", optimizer=optimizer)][0]
    # One of them has looked some rows up alone.
    for its_tables, its_numbers, shapes, _ in two[_scenario("trained", optimizer=optimizer)]:
        for name, table in tables.items():
            np.testing.assert_allclose(its_tables[name], table, rtol=1e-9, atol=1e-12)
        for its, expected in zip(its_numbers, numbers, strict=True):
            np.testing.assert_allclose(its, expected, rtol=1e-9, atol=1e-12)
        assert shapes == [(1, 4), (1, 4)]  # the worker has no rows
    assert numbers[0][1] < numbers[0][0]


def test_a_loop_of_the_programs_own_trains_as_with_plain_embeddings(two, alone):
    losses, tables = alone[_scenario("loop", is_plain=True)][0]
    for its_losses, its_tables in two[_scenario("loop", is_plain=False)]:
        np.testing.assert_allclose(its_losses, losses, rtol=1e-9)
        np.testing.assert_allclose(its_tables["words"], tables["words"], rtol=1e-9, atol=1e-12)


def test_a_step_asks_for_rows_of_all_tables_at_once_and_updates_them_so(two):
    for *_, asked in two[_scenario("trained", optimizer="LazyAdam")]:
        assert asked == {"read": [2] * 10, "update": [2] * 10}  # two epochs of five batches


def test_files_have_whole_tables_and_states(two, alone, loading, folder):
    _check_files(two, alone, loading, folder)


@pytest.mark.extended
def test_three_workers_read_them_too(two, loading, folder):
    _check_files(two, workers.run(PROGRAM, [loading], 3), loading, folder)


def _check_files(two, group, loading, folder):
    _, before, after = two[_scenario("saves", folder=folder)][0]
    for found in group[loading]:
        assert len(found) == 3
        for its_before, its_after in found:
            for name, table in before.items():
                np.testing.assert_array_equal(its_before[name], table)
                np.testing.assert_allclose(its_after[name], after[name], rtol=1e-9, atol=1e-12)


def test_files_have_rows_and_states_for_either_placement(two, folder):
    for results in two[_scenario("crosses", folder=folder)]:
        assert sorted(results) == ["servers", "workers"]
        for found in results.values():
            rows, steps = found.pop("saved")
            assert len(rows) == 2 + 2 + 1  # LazyAdam has two states, Adagrad one
            assert len(found) == 4
            for how, (its_rows, its_steps) in found.items():
                assert its_steps == steps == {"users": 3, "words": 4}, how
                assert sorted(its_rows) == sorted(rows), how
                for name, values in rows.items():
                    np.testing.assert_array_equal(its_rows[name], values, err_msg=how)


def test_servers_make_the_initial_rows_whatever_their_number(two):
    first = two["initial_rows"][0]
    of_three = workers.run(PROGRAM, ["initial_rows"], 3)["initial_rows"]
    for found in [*two["initial_rows"], *of_three]:
        for name, rows in first.items():
            np.testing.assert_array_equal(found[name], rows)
    assert -0.5 <= first["uniform"].min() < -0.49 and 0.24 < first["uniform"].max() < 0.25
    assert abs(first["uniform"].mean() + 0.125) < 0.01
    assert abs(first["normal"].mean() - 1) < 0.02 and abs(first["normal"].std() - 0.5) < 0.02
    assert first["normal"].max() > 2.1
    assert first["truncated"].min() >= 0 and first["truncated"].max() <= 2
    assert abs(first["scaled"].std() - 0.25) < 0.01
    assert (first["constant"] == 0.75).all()


def test_tables_that_servers_cannot_hold_are_refused(two):
    for messages, rows in two["bad_tables"]:
        assert 'the table "vast" needs ' in messages["too large"], messages
        assert "bytes free" in messages["too large"] and "server" in messages["too large"]
        assert "the workers make different tables of one name" in messages["other shapes"]
        assert "5 rows of 4 in block 0 of 2" in messages["other shapes"]
        assert "placement='servers' and optimizer Adam: servers update" in messages["optimizer"]
        assert "give tf_byteps.keras.optimizers.LazyAdam to its Tab" in messages["optimizer"]
        assert "optimizer Lion: servers" in messages["unknown"]
        assert "give one of these to its TableConfig" in messages["unknown"]
        assert "optimizer SGD with momentum: servers" in messages["momentum"]
        assert "tf_byteps.keras.optimizers.LazySGD to its Tab" in messages["momentum"]
        assert "has beta_1=1.0, which servers do not support: give" in messages["beta"]
        assert "its optimizer has clipnorm=1.0" in messages["clipped"]
        assert "and optimizer None: servers update rows by" in messages["no optimizer"]
        assert "is a GlorotUniform, whose rows servers cannot make" in messages["initializer"]
        assert (rows == 1).all()


def test_tables_of_two_layers_are_two_whatever_their_names(two):
    for first, second in two["same_names"]:
        assert first.shape == (6, 4) and (first == 2).all()
        assert second.shape == (9, 2) and (second == 1).all()


@pytest.mark.parametrize("index", some_extended(_INDICES, [50]))
def test_an_index_out_of_range_changes_no_row(two, indices, index):
    found = [each[indices.index(index)] for each in two[_scenario("bad_rows", indices=indices)]]
    assert any(
        "the feature words has an index that is not in the table words, which has 50 rows"
        in message
        for message, *_ in found
    ), found
    _go_on(found)


def test_gradients_that_are_not_numbers_change_no_row(two, indices):
    found = [each[-1] for each in two[_scenario("bad_rows", indices=indices)]]
    assert any("gradients that are NaN or infinite" in message for message, *_ in found), found
    _go_on(found)


def _go_on(results):
    """The tables are as they were, and both workers train on."""
    for message, changed, losses in results:
        assert message != "no error" and not any(changed), message
        assert np.isfinite(losses).all()
    assert results[0][2] == results[1][2]
