"""Numbers that tell whether arrays of the workers are the same, without sending the arrays.

Each word of a large array is mixed with its place by the last steps of MurmurHash3, and the words
are added up: in any order, so that a GPU takes as long as it takes to read them. Small arrays come
to the host, all at once, and are hashed there: they are many.
"""

import hashlib
import zlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_LARGE_BYTES = 1 << 16  # below it a program would take longer to compile than it saves
_WORDS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint32", 16: "uint32"}


def fingerprints(arrays: Sequence[Any]) -> list[int]:
    """A 64-bit number for each array's bits. Other dtypes or values give other numbers.

    An array of 64 KiB or more is read where it is: on a GPU it is not copied to the host. For these
    a program is compiled for each shape.

    Args:
        arrays: a list of `jax.Array` or `np.ndarray` of any shape, of numbers or booleans.

    Returns:
        A list of integers, the same on all platforms.

    Example:

    >>> fingerprints([weights]) == fingerprints([np.asarray(weights)])
    """
    begun = [_sums(array) if array.nbytes >= _LARGE_BYTES else array for array in arrays]
    return [
        _number(one, str(array.dtype)) if array.nbytes >= _LARGE_BYTES else _hashed(one)
        for one, array in zip(jax.device_get(begun), arrays, strict=True)
    ]


def _hashed(array: np.ndarray) -> int:
    digest = hashlib.blake2b(str(array.dtype).encode(), digest_size=8)
    digest.update(array.tobytes())
    return int.from_bytes(digest.digest(), "little", signed=True)


def _sums(array: Any) -> Any:
    is_complex = jnp.issubdtype(array.dtype, jnp.complexfloating)  # JAX does not give its bits
    is_read_here = isinstance(array, jax.Array) and not is_complex
    return _on_device(array) if is_read_here else _on_host(np.asarray(array))


@jax.jit
def _on_device(array: jax.Array) -> jax.Array:
    words = _WORDS[array.dtype.itemsize]
    if array.dtype == bool:
        array = array.astype(words)
    both = _mixed_words(jax.lax.bitcast_convert_type(array, words), jnp)
    # Both sums at once: six times as fast on a CPU as one after the other.
    add = lambda one, other: (one[0] + other[0], one[1] + other[1])  # noqa: E731
    return jnp.stack(jax.lax.reduce(both, (jnp.uint32(0),) * 2, add, (0,)))


def _on_host(array: np.ndarray) -> np.ndarray:
    words = np.ascontiguousarray(array).reshape(-1).view(_WORDS[array.dtype.itemsize])
    return np.stack([each.sum(dtype="uint32") for each in _mixed_words(words, np)])


def _mixed_words(words: Any, numpy: Any) -> tuple[Any, Any]:
    words = words.reshape(-1).astype("uint32")
    places = numpy.arange(words.size, dtype="uint32") * numpy.uint32(0x9E3779B1)
    first = _mixed(words ^ places, numpy)
    return first, (first ^ (first >> 15)) * numpy.uint32(0x27D4EB2F)


def _mixed(words: Any, numpy: Any) -> Any:
    words = (words ^ (words >> 16)) * numpy.uint32(0x85EBCA6B)
    words = (words ^ (words >> 13)) * numpy.uint32(0xC2B2AE35)
    return words ^ (words >> 16)


def _number(sums: np.ndarray, dtype: str) -> int:
    high, low = (int(each) for each in sums)
    number = (high ^ zlib.crc32(dtype.encode())) << 32 | low
    return number - (1 << 64) if number >> 63 else number
