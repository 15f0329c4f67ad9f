"""Rows of `tf.IndexedSlices` are encoded before they are gathered, and decoded after it."""

import numpy as np
import pytest

from tests.cluster import run_workers
from tests.codec import oracle, sums
from tests.ops import compressed_rows_programs as programs

pytestmark = pytest.mark.time_limit(300)


def _expected(codec, width):
    """What all workers' rows add up to, each decoded from its encoded form."""
    total = np.zeros([60, width], np.float32)
    for rank in range(2):
        indices, rows = programs.rows(rank, width)
        own = np.zeros_like(total)
        np.add.at(own, indices, rows)
        for index in np.unique(indices):
            number, payload = oracle.encode(codec, own[index])
            total[index] += oracle.decode(codec, number, payload, width)
    return total


def test_all_workers_decode_the_same_bytes():
    first, second = run_workers(programs.exchanges, 2, 2, timeout=240)
    for name, result in first.items():
        width_name, compression = name.split()
        width = programs.WIDTHS[width_name]
        assert result["digests"] == second[name]["digests"], name
        assert len(set(result["digests"])) == 1, name
        assert result["average"] == result["digests"][0], name
        if compression in ("int8", "fp8"):
            expected = _expected(sums.CODECS[compression][1], width)
            np.testing.assert_array_equal(np.float32(result["values"]), expected, name)
        assert result["error"] < (0.5 if "fp8" in compression else 0.1), name
        plain = first[f"{width_name} none"]
        assert plain["error"] < 1e-6
        # A row has an index of 8 bytes, and a scale of 2 in each block.
        blocks = -(-width // (128 if compression == "fp8" else 32))
        row_bytes = 8 + min(4 * width, width + 2 * blocks)
        # Encoded rows are gathered as one tensor with their indices, which has a row more. Plain
        # ones may be added up on servers, so that they come with nothing else.
        distinct = len(np.unique(programs.rows(0, width)[0]))
        assert plain["pushed"] == distinct * (8 + 4 * width), name
        if compression != "none":
            assert result["pushed"] == (distinct + 1) * row_bytes, name


def test_dtypes_and_what_is_refused():
    first, second = run_workers(programs.dtypes_and_errors, 2, 2, timeout=200)
    for own in (first, second):
        assert own["dtypes"] == ["float16", "bfloat16", "float64"]
        assert own["integers"][0] == "TypeError" and "int32" in own["integers"][1]
        kind, message = own["disagreement"]
        assert kind == "FailedPreconditionError"
        for part in ("embedding/rows", "int8:block=32", "fp8:block=32", "worker 1"):
            assert part in message, message


def test_one_worker_has_exact_rows():
    assert run_workers(programs.alone, 1, 0, timeout=100) == [True]
