"""Trainings with compressed gradients come out as those with float32."""

import pytest

from tests.cluster import run_workers
from tests.strategy import compressed_programs

pytestmark = pytest.mark.time_limit(1000)

# Of the loss. Whether blocks are rounded well is tests/codec's to say; a scale or a shift that is
# wrong in one place would show here.
_TOLERANCE = {
    "int8": 0.02,
    "fp8": 0.04,
    "int4": 0.1,
    "onebit": 0.05,
    "topk": 0.1,
    "kernels": 0.02,
    "dithering": 0.1,
    "thc": 0.1,
}


def test_losses_are_near_those_without():
    every = {"BYTEPS_MIN_COMPRESS_BYTES": "0"}
    first, second = run_workers(compressed_programs.train_all, 2, 2, every, timeout=900)
    assert first == second, "the workers' weights differ"
    for name, (loss, weights) in first.items():
        way, compression = name.split()
        plain, plain_weights = first[f"{way} none"]
        if compression != "none":
            assert loss == pytest.approx(plain, rel=_TOLERANCE[compression]), name
            assert weights != plain_weights, f"{name} compressed nothing"
