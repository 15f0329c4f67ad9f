"""A program of Keras-RS runs when its import is changed: on two workers as in one process.

In one process it shows what Keras-RS 0.4.0 shows, bit for bit. That needs Keras-RS, which tests do
not install.
"""

import numpy as np
import pytest

from tests import workers
from tests.tables import keras_rs_programs


@pytest.fixture(scope="module")
def two():
    return workers.run(keras_rs_programs.__file__, ["changed"], 2)["changed"]


@pytest.fixture(scope="module")
def alone():
    return workers.run(keras_rs_programs.__file__, ["changed"], 1)["changed"]


def test_two_workers_show_what_one_process_shows(two, alone):
    ((expected, imports),) = alone
    assert imports == 1
    assert expected["losses"][1] < expected["losses"][0]
    for found, _ in two:
        np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-5)
        assert sorted(found["tables"]) == ["films", "tags", "users"]
        for name, table in expected["tables"].items():
            np.testing.assert_allclose(found["tables"][name], table, rtol=1e-4, atol=1e-6)


def test_results_have_the_structure_of_the_features(two, alone):
    ((expected, _),) = alone
    for found, _ in two:
        for one, other in (
            (found["looked up"]["user"], expected["looked up"]["user"]),
            (found["looked up"]["tags"], expected["looked up"]["tags"]),
            (found["looked up"]["films"]["seen"], expected["looked up"]["films"]["seen"]),
            (found["looked up"]["films"]["liked"], expected["looked up"]["films"]["liked"]),
        ):
            assert one.shape == (8, 4)
            np.testing.assert_allclose(one, other, rtol=1e-6)
        assert found["configs"] == ["input_shape", "name", "output_shape", "table"]
