"""Copies of JAX's arrays on a GPU, and from there on the host; skipped where there is none."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("jaxlib", reason="jax is not installed")
from tests.gpu.test_gpu import GPUS  # noqa: E402

pytestmark = pytest.mark.skipif(not GPUS, reason="this machine has no NVIDIA GPU")

_PROGRAM = """
import jax
import jax.numpy as jnp
import numpy as np

from tf_byteps.jax.host_copies import copies_on_device, copies_on_host

given = [np.arange(1 << 20, dtype=np.float32), np.ones([7], jnp.bfloat16)]
values = [jnp.asarray(each) for each in given]
on_device = copies_on_device(values)
step = jax.jit(lambda values: [value + 1 for value in values], donate_argnums=0)
after = step(values)
assert all(value.is_deleted() for value in values)
on_host = copies_on_host(on_device)
del on_device
jax.block_until_ready(step(after))
assert {copy.sharding.memory_kind for copy in on_host} == {"pinned_host"}
for copy, expected in zip(on_host, given, strict=True):
    np.testing.assert_array_equal(np.asarray(copy), expected)
limit = jax.devices()[0].memory_stats()["bytes_limit"]
large = jnp.zeros([limit * 2 // 5], jnp.uint8)
assert copies_on_device([large]) is None, "twice its size is not free"
print("passed")
"""


def test_copies_outlive_the_steps_that_take_the_memory_of_arrays():
    environment = {"JAX_PLATFORMS": "cuda,cpu", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.2"}
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "passed\n"), ended.stderr[-3000:]
