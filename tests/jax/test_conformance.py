"""Some rows of tests/conformance, with the same tolerances, and Keras on JAX."""

import numpy as np
import pytest

from tests import side_by_side
from tests.cluster import run_workers
from tests.conformance import running
from tests.conformance.sides import SINGLE, STRATEGY
from tests.selection import asked_values

pytest.importorskip("jax", reason="Keras on JAX needs jax")

_ENVIRONMENT = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
    "BYTEPS_OPERATION_TIMEOUT": "240",
}
_GROUP_SECONDS = 900

_ROWS = (
    "class_and_sample_weights",
    "early_stopping",
    "gradient_accumulation",
    "uneven_arrays",
)


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    """What one process showed, and what each worker of the groups."""
    names = asked_values(request, "name", test_row)

    def run(workers, mode):
        return run_workers(
            running.run_rows,
            workers=max(workers, 1),
            servers=1 if workers else 0,
            timeout=_GROUP_SECONDS,
            env=_ENVIRONMENT,
            args=(mode, str(tmp_path_factory.mktemp("files")), names),
        )

    return run(0, SINGLE)[0], run(2, STRATEGY)


@pytest.mark.time_limit(2 * _GROUP_SECONDS)
@pytest.mark.parametrize("name", _ROWS)
def test_row(results, name):
    single, ours = side_by_side.checked(name, *results)
    rtol, atol = (2e-3, 2e-4) if running.all_rows()[name].rounded else (1e-5, 1e-6)
    for array, expected in zip(ours["arrays"], single["arrays"], strict=True):
        np.testing.assert_allclose(np.array(array), np.array(expected), rtol=rtol, atol=atol)
