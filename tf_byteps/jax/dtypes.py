"""Which arrays can be exchanged, and in which form."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

_SUMMED = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
# Of one byte or two, and of the width of a signed type: bits are copied.
_BITS = {"int16": jnp.uint8, "uint16": jnp.uint8, "uint32": jnp.int32, "uint64": jnp.int64}
_COPIED = (*_SUMMED, "bool", *_BITS, "complex64", "complex128")

# Makes the result of what an exchange returned.
Decode = Callable[[jax.Array], Any]


def checked(value: Any, what: str) -> jax.Array:
    """The array to add up.

    Args:
        value: what the user gave.
        what: the operation's name, for error messages.

    Raises:
        TypeError: arrays of its dtype cannot be added up by servers.
    """
    array = jnp.asarray(value)
    if str(array.dtype) not in _SUMMED:
        raise _refused(array, what, _SUMMED)
    return array


def to_copy(value: Any, what: str) -> tuple[jax.Array, Decode]:
    """An array whose bits are to be copied, as one that the engine exchanges.

    Args:
        value: what the user gave: an array, or random keys.
        what: the operation's name, for error messages.

    Returns:
        The array, perhaps with one more axis at its end, and what makes the result.

    Raises:
        TypeError: arrays of its dtype cannot be copied.
    """
    if hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        data, decode = to_copy(jax.random.key_data(value), what)
        kind = jax.random.key_impl(value)
        return data, lambda result: jax.random.wrap_key_data(decode(result), impl=kind)
    array = jnp.asarray(value)
    dtype = array.dtype
    name = str(dtype)
    if name in _SUMMED:
        return array, lambda result: result
    if name == "bool":
        return array.astype(jnp.uint8), lambda result: result.astype(dtype)
    if name in _BITS:
        bits = jax.lax.bitcast_convert_type(array, _BITS[name])
        return bits, lambda result: jax.lax.bitcast_convert_type(result, dtype)
    if name in _COPIED:
        parts = jnp.stack([array.real, array.imag], axis=-1)
        return parts, lambda result: jax.lax.complex(result[..., 0], result[..., 1])
    raise _refused(array, what, _COPIED)


def _refused(array: jax.Array, what: str, supported: tuple[str, ...]) -> TypeError:
    return TypeError(
        f"{what} cannot exchange an array of dtype {array.dtype}; supported are "
        f"{', '.join(supported)}"
    )
