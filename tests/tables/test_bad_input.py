"""Bad input of tables gets a sentence, and nothing of the tables is lost."""

import os

import numpy as np
import pytest

from tests import workers
from tests.selection import some_extended

pytestmark = pytest.mark.time_limit(420)

PROGRAM = os.path.join(os.path.dirname(__file__), "bad_input_programs.py")


_scenario = workers.scenario


def _of_two(scenario):
    return workers.run(PROGRAM, [scenario], 2)[scenario]


@pytest.mark.parametrize("value", some_extended([-1, 50], [-1]))
def test_an_index_out_of_range_changes_no_row(value):
    results = _of_two(_scenario("index", value=value))
    assert any(
        "the feature words has an index that is not in the table words, which has 50 rows"
        in message
        for message, *_ in results
    ), results
    for message, changed, finite in results:
        assert message != "no error" and finite and not any(changed), message


@pytest.mark.parametrize("own", ["RowWiseAdagrad", None])
def test_gradients_that_are_not_numbers_change_no_row(own):
    results = _of_two(_scenario("target", own=own))
    assert any(
        "have gradients that are NaN or infinite, and are not updated" in message
        for message, *_ in results
    ), results
    for message, changed, finite in results:
        assert message != "no error" and finite and not any(changed), message


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("files"))
    loading = _scenario("loads_other_shape", folder=folder)
    group = workers.run(PROGRAM, ["same_names", "one_layer", loading], 2)
    return {**{name: group[name] for name in ("same_names", "one_layer")}, "loads": group[loading]}


@pytest.fixture(scope="module")
def alone():
    return workers.run(PROGRAM, ["same_names"], 1)


def test_tables_of_two_layers_are_two_whatever_their_names(two, alone):
    (expected,) = alone["same_names"]
    assert expected["first"].shape == (6, 4) and expected["second"].shape == (9, 2)
    assert np.any(expected["first"] != 1) and np.all(expected["second"][6:] == 1)
    for found in two["same_names"]:
        for name, table in expected.items():
            np.testing.assert_allclose(found[name], table, rtol=1e-9)


def test_two_tables_of_one_name_in_a_layer_are_refused(two):
    for message in two["one_layer"]:
        assert "two tables have the name 'users' ((6, 4) and (9, 4))" in message


def test_a_file_with_another_number_of_rows_is_refused(two):
    for (of_keras, of_tensorflow), unchanged in two["loads"]:
        assert "the table 'users' must have shape (9, 4), got (6, 4)" in of_keras
        assert "the file has 6 rows of the tables ['users'], which have 9" in of_tensorflow
        assert unchanged
