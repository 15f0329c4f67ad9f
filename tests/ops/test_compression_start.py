"""Codecs that begin later, and error feedback that is taken out and given back."""

import numpy as np
import pytest

from tests.cluster import run_workers
from tests.codec import sums
from tests.ops import compression_start_programs as programs

pytestmark = pytest.mark.time_limit(300)

_PART_ELEMENTS = 16_384
_SETTINGS = {"BYTEPS_PARTITION_BYTES": str(4 * _PART_ELEMENTS), "BYTEPS_LOG_LEVEL": "INFO"}


def _gradients(round_number):
    return [sums.gradient(rank, round_number, programs.LENGTH) for rank in range(2)]


def test_rounds_before_the_start_are_exact():
    first, second = run_workers(programs.exchanges, 2, 2, _SETTINGS, timeout=200)
    assert first == second
    kind, message = first.pop("refused")
    assert kind == "ValueError" and 'start_step is "-1", must be a whole number' in message
    for own, digests in first.items():
        name = own.split()[1]
        start = programs.STARTS[name][1]
        exchanges = sums.Exchanges(name, own, _PART_ELEMENTS, first_round=start)
        for round_number, digest in enumerate(digests):
            gradients = _gradients(round_number)
            late = round_number >= start
            expected = exchanges.next(gradients) if late else np.sum(gradients, axis=0)
            assert digest == programs.digest(expected), (own, round_number)


def test_a_tensor_goes_on_with_the_residual_that_was_saved():
    first, second = run_workers(programs.residuals, 2, 2, _SETTINGS, timeout=200)
    assert first == second
    whole, resumed, pending, third = first
    assert resumed == whole
    assert pending
    fresh = sums.Exchanges("onebit", "third", _PART_ELEMENTS).next(_gradients(2))
    assert third == programs.digest(fresh), "what does not fit begins at zero"
