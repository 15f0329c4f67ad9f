"""Numbers that tell whether arrays are the same, wherever they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tf_byteps.jax.fingerprints import fingerprints

_DTYPES = ("float32", "float16", "bfloat16", "int8", "uint8", "bool", "int32", "uint32")
_DTYPES += ("complex64",)


@pytest.mark.parametrize("shape", [(), (0,), (7,), (301, 211)])
@pytest.mark.parametrize("dtype", _DTYPES)
def test_a_number_is_the_same_on_the_host_and_on_the_device(dtype, shape):
    drawn = np.random.default_rng(1).normal(size=shape) * 10
    array = jnp.asarray(np.asarray(drawn), dtype)
    on_host = np.asarray(array)
    assert fingerprints([array]) == fingerprints([on_host])
    assert fingerprints([array.reshape(-1)]) == fingerprints([on_host])


def test_wide_numbers():
    with jax.enable_x64(True):
        for dtype in ("float64", "int64"):
            on_host = np.arange(50_000, dtype=dtype) * 1.1
            assert fingerprints([jnp.asarray(on_host)]) == fingerprints([on_host])


@pytest.mark.parametrize("elements", [8, 100_000])
def test_each_bit_each_place_and_the_dtype_count(elements):
    array = np.random.default_rng(2).normal(size=elements).astype(np.float32)
    changed = array.copy()
    changed[-1] = np.nextafter(changed[-1], np.float32(9))
    swapped = array.copy()
    swapped[[0, 5]] = swapped[[5, 0]]
    negative_zero = array * np.float32(0)
    numbers = fingerprints(
        [jnp.asarray(each) for each in (array, changed, swapped, abs(negative_zero))]
        + [array.view(np.int32), np.full_like(array, -0.0)]
    )
    assert len(set(numbers)) == 6
    assert all(-(2**63) <= number < 2**63 for number in numbers)
