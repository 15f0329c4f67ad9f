"""`DistributedOptimizer` without a strategy: two workers give what one process gives."""

import numpy as np
import pytest

from tests.cluster import run_workers
from tests.keras_api import rows

_ROUNDED = ("mixed_float16", "mixed_bfloat16", "predivide_and_bfloat16")


@pytest.fixture(scope="module")
def results():
    return run_workers(rows.run_rows, workers=2, servers=1, timeout=240, args=([],))


@pytest.mark.parametrize("row", [row.__name__ for row in rows.ROWS])
def test_row(results, row):
    for rank, result in enumerate(results):
        assert "error" not in result[row], f"worker {rank}:\n{result[row]['error']}"
    # All workers hold the same bits.
    assert results[0][row]["weights"] == results[1][row]["weights"]
    rtol, atol = (2e-3, 2e-4) if row.startswith(_ROUNDED) else (1e-5, 1e-6)
    expected = results[0][row]["reference"]
    for ours, reference in zip(results[0][row]["weights"], expected, strict=True):
        np.testing.assert_allclose(np.array(ours), np.array(reference), rtol=rtol, atol=atol)
