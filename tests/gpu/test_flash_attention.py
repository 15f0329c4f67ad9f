"""Attention by cuDNN; skipped where there is no GPU."""

import functools

import pytest

from tests.gpu import attention_programs
from tests.gpu.test_compiled import TOOLKIT
from tests.gpu.test_gpu import GPUS, run

pytestmark = pytest.mark.skipif(not GPUS, reason="this machine has no NVIDIA GPU")

run = functools.partial(run, **TOOLKIT)


def test_outputs_and_gradients_are_those_of_keras():
    """cuDNN's are at least as near to those in float32: it rounds less."""
    (found,) = run(attention_programs.compares, servers=0, hosts="a")
    assert len(found) == 17
    for dtype, queries, plain, fused in found:
        assert fused <= max(1.1 * plain, 1e-4), (dtype, queries, plain, fused)


@pytest.mark.parametrize("hosts", ["a", "aa", "ab"])
def test_training_is_as_with_attention_of_keras(hosts):
    plain = run(attention_programs.trains, args=[False], hosts=hosts)
    fused = run(attention_programs.trains, args=[True], hosts=hosts)
    assert plain[0]["calls"] == 0 < fused[0]["calls"]
    assert len({each["digest"] for each in fused}) == 1
    assert fused[0]["losses"] == pytest.approx(plain[0]["losses"], rel=2e-2)
    assert fused[0]["predicted"] == pytest.approx(plain[0]["predicted"], rel=2e-2)
