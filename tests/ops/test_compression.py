"""Compressed tensors in jobs of real processes, against NumPy (protocol rules 2 and 29)."""

import numpy as np
import pytest

from tests.cluster import run_workers
from tests.codec import sums
from tests.ops import compression_programs as programs

pytestmark = pytest.mark.time_limit(300)

_PART_ELEMENTS = 16_384
_SETTINGS = {
    "BYTEPS_PARTITION_BYTES": str(4 * _PART_ELEMENTS),
    "BYTEPS_DETERMINISTIC": "1",  # three contributions round by their order
}


@pytest.mark.parametrize("size", [2, 3])
def test_every_worker_has_the_bits_of_the_oracle(size):
    results = run_workers(programs.exchanges, size, 2, _SETTINGS, timeout=240)
    for rank, of_worker in enumerate(results):
        assert of_worker == results[0], f"worker {rank}"
    for compression in sums.CODECS:
        for how in ("eager", "traced", "compiled", "average"):
            name = f"{how} {compression}"
            exchanges = sums.Exchanges(compression, name, _PART_ELEMENTS)
            for round_number, digest in enumerate(results[0][name]):
                gradients = [
                    sums.gradient(rank, round_number, programs.LENGTH) for rank in range(size)
                ]
                expected = exchanges.next(gradients, how == "average")
                assert digest == programs.digest(expected), (name, round_number)


def test_hosts_with_different_numbers_of_gpus_share_norms():
    """A host's GPUs add up before anything is encoded, so a norm is larger there."""
    results = run_workers(
        programs.on_hosts_of_unequal_size,
        3,
        1,
        lambda label: {"BYTEPS_HOST_ID": "small" if label == "worker 2" else "large"},
        timeout=200,
    )
    assert [local_size for local_size, *_ in results] == [2, 2, 1]
    assert len({digest for *_, digest in results}) == 1
    assert all(abs(mean - 3) < 0.1 for _, mean, _ in results), results


def test_options_by_a_call_are_those_by_name():
    first, second = run_workers(programs.called_with_options, 2, 2, _SETTINGS, timeout=200)
    assert first == second
    for name, digest in first["digests"].items():
        gradients = [sums.gradient(rank, 0, programs.LENGTH) for rank in range(2)]
        expected = sums.Exchanges(name, name, _PART_ELEMENTS).next(gradients)
        assert digest == programs.digest(expected), name
    kinds, messages = zip(*first["refused"], strict=True)
    assert kinds == (*("ValueError",) * 7, "TypeError")
    expected = ('"33"', '"64.0"', '"2"', 'ratio is "0"', 'ratio is "1.5"')
    expected += ('bits is "9"', "partition is 'log'", "'block'")
    for given, message in zip(expected, messages, strict=True):
        assert given in message, message
    assert all(first["equal"])
    assert first["shown"] == "<Int8Compressor 'int8:block=64,stochastic=0'>"


@pytest.mark.parametrize("size", [2, 3])
def test_whole_numbers(size):
    results = run_workers(programs.whole_numbers, size, 2, {}, timeout=240)
    first = results[0]
    assert all(of_worker == first for of_worker in results)
    for how in ("eager", "traced", "compiled"):
        for op in ("sum", "average"):
            _, error = first[f"{how} {op}"]
            assert 0.001 < error < 0.1, (how, op)
        for scale in (*programs.SCALES, programs.BELOW_NORMAL):
            assert 0.001 < first[f"{how} {scale}"] < 0.1, (how, scale)
    assert first["zero"] == 0
    assert first["finite"] == [True, False], "the block that has an infinity, and no other"
    assert first["gradient"] == [1.0]
    assert first["dtype"] == "float64"
    assert first["short"] == pytest.approx(size / 3, abs=1e-6), "sent as it is"
    assert first["backup"] == [
        "ValueError",
        "compression 'thc' needs the norms of all workers, and "
        "backup_workers is 1: choose one of them",
    ]


def test_error_feedback_passes_over_what_is_not_finite():
    results = run_workers(programs.not_finite_in_between, 2, 2, _SETTINGS, timeout=200)
    assert results[0] == results[1]
    for compression, digests in results[0].items():
        exchanges = sums.Exchanges(compression, compression, _PART_ELEMENTS)
        for round_number, digest in enumerate(digests):
            gradients = [programs.perhaps_not_finite(rank, round_number) for rank in range(2)]
            expected = exchanges.next(gradients)
            assert digest == programs.digest(expected), (compression, round_number)
            assert np.isfinite(expected).all() == (round_number not in programs.NOT_FINITE)


def test_what_else_is_asked_for():
    first, second = run_workers(programs.others, 2, 2, timeout=200)
    for own in (first, second):
        for dtype, error in own["dtypes"]:
            assert error < 0.02, dtype
        assert [dtype for dtype, _ in own["dtypes"]] == ["float16", "bfloat16", "float64"]
        third = 0.3333333432674408
        assert own["rows"] == pytest.approx([third, 2 * third], rel=0.01)
        assert third not in own["rows"], "they were compressed"
        assert own["short"] == third
        assert own["list"] == pytest.approx([4, 8], rel=0.04)
        assert own["integers"][0] == "TypeError" and "int32" in own["integers"][1]
        assert own["maximum"][0] == "ValueError" and "'max'" in own["maximum"][1]
        assert own["unknown"][0] == "ValueError" and "'int9'" in own["unknown"][1]
        for option, message in {
            "onebit:block=32": 'unknown option "block"; known: feedback',
            "int4:feedback=2": 'feedback is "2", must be 0 or 1',
            "topk:ratio=2": 'ratio is "2", must be greater than 0 and at most 1',
            "bf16:feedback=1": "options are for 'int8', 'fp8', 'int4', 'onebit', 'topk', "
            "'randomk', 'dithering', 'thc', 'powersgd'",
            "int9:block=32": "options are for",
        }.items():
            assert own["options"][option][0] == "ValueError", option
            assert message in own["options"][option][1], option
        assert not own["not finite"]
        kind, message = own["disagreement"]
        assert kind == "FailedPreconditionError"
        for part in ("dense/kernel", "int8:block=32,stochastic=0", "onebit:feedback=1", "worker 1"):
            assert part in message, message


def test_with_backup_workers():
    results = run_workers(programs.without_the_last, 3, 2, timeout=200)
    assert len(set(results)) == 1
