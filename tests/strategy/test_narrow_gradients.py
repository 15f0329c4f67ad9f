"""Gradients of mixed precision travel in 16 bits, and change no bit of a training."""

import pytest

from tests.cluster import run_workers
from tests.strategy import narrow_programs

pytestmark = pytest.mark.time_limit(400)


def _train(narrow):
    def settings(label):
        # Each on a host of its own: within one, servers read from the workers' memory.
        return {
            "BYTEPS_HOST_ID": label,
            "BYTEPS_LINK_BYTES_PER_SECOND": "125000000",
            "BYTEPS_NARROW": str(int(narrow)),
            "BYTEPS_MIN_COMPRESS_BYTES": "0",
            "BYTEPS_DETERMINISTIC": "1",
        }

    return run_workers(narrow_programs.train, 2, 1, settings, timeout=180)


def test_fewer_bytes_give_the_same_weights():
    narrow, wide = _train(True), _train(False)
    for of_worker, of_worker_wide in zip(narrow, wide, strict=True):
        for name, (digest, pushed) in of_worker.items():
            digest_wide, pushed_wide = of_worker_wide[name]
            assert digest == digest_wide == narrow[0][name][0], name
            share = pushed / pushed_wide
            # Both layers' kernels and biases; the second one computes in float32.
            assert 0.5 < share < 0.65 if "mixed" in name else share == 1, (name, share)
