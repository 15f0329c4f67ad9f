"""A function of the variable chooses how its gradient is compressed."""

import numpy as np
import pytest

from tests.cluster import run_workers
from tests.codec import sums
from tests.ops import compression_choice_programs as programs
from tests.ops.compression_programs import digest

pytestmark = pytest.mark.time_limit(300)

_PART_ELEMENTS = 16_384
_SETTINGS = {"BYTEPS_PARTITION_BYTES": str(4 * _PART_ELEMENTS), "BYTEPS_MIN_COMPRESS_BYTES": "0"}


def _expected(round_number):
    """Digests of what comes out, by variable."""
    of_workers = [programs.gradients(rank, round_number) for rank in range(2)]
    kernel, gamma, bias = zip(*of_workers, strict=True)
    results = [
        sums.Exchanges("int8", "kernel", _PART_ELEMENTS).next(kernel, average=True),
        sums.Exchanges("fp8", "gamma", _PART_ELEMENTS).next(gamma, average=True),
        (bias[0] + bias[1]) / np.float32(2),
    ]
    return [digest(each + np.float32(0)) for each in results]  # no -0


def test_each_variable_has_its_own():
    first, second = run_workers(programs.chosen, 2, 2, _SETTINGS, timeout=240)
    assert first == second
    expected = [_expected(round_number) for round_number in range(programs.ROUNDS)]
    for way, rounds in first.items():
        assert rounds == expected, way
    assert len(first) == 9


def test_wrong_answers_and_functions_that_differ():
    kernel = "'dense/kernel' of shape (5001, 2) and dtype float32"
    for own in run_workers(programs.refused, 2, 2, _SETTINGS, timeout=240):
        for what, kind, parts in (
            ("number", "TypeError", ["returned 8 for", kernel]),
            ("name", "ValueError", ["returned 'int9' for", kernel, "use one of 'none'"]),
            ("option", "ValueError", ["returned 'int4:feedback=2' for", kernel, "0 or 1"]),
            ("function", "TypeError", ["returned <function choose", kernel]),
            ("tensor", "TypeError", ["returned 8 for", "of shape (2,) and dtype float32"]),
            ("strategy", "TypeError", ["returned 3.5 for", "last/kernel' of shape (2, 3)"]),
            ("push_pull", "TypeError", ["a tf_byteps.Compressor or its name", "choose"]),
            ("class", "TypeError", ["got <class 'dict'>"]),
        ):
            assert own[what][0] == kind, own[what]
            for part in parts:
                assert part in own[what][1], own[what]
        for how in ("eager", "traced", "compiled"):
            kind, message = own[f"disagreement {how}"]
            assert kind == "FailedPreconditionError", (how, kind, message)
            for part in (f"{how}/kernel", "int8:block=32,stochastic=0", "worker 1"):
                assert part in message, message
