"""Numbers that exchanges multiply by are not rounded to float32 first."""

import numpy as np
import pytest

from tests.cluster import run_workers
from tests.ops import factor_programs


def test_float64_factors_have_all_their_digits():
    x = np.array([1.0, 3.0])
    for result in run_workers(factor_programs.scaled, workers=2, servers=1):
        assert result["before"] == (2 * (x * 0.1)).tolist()
        assert result["after"] == (2 * x * 0.1).tolist()
        assert result["tensor"] == x.tolist()
        assert sorted(result["rows"]) == pytest.approx([0.2, 0.6], rel=1e-15)
        assert result["gradient"] == (4 * x).tolist()
