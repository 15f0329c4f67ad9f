"""What a compressor does to JAX's arrays."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tf_byteps.exchange.compression import AnyCompressor, resolve, takes_two_exchanges
from tf_byteps.exchange.compressor import (
    BF16Compressor,
    CastBack,
    FP16Compressor,
    NoneCompressor,
    codec_of,
)
from tf_byteps.exchange.reduce_op import Average, ReduceOp, Sum

Compressed = tuple[jax.Array, Callable[[jax.Array], jax.Array]]


class Compression:
    """A compressor that was chosen for exchanges of JAX's arrays.

    Args:
        given: see `push_pull`.
        op: of the exchanges.

    Attributes:
        codec: the engine's for it; "": the arrays are sent as they are, or cast.

    Raises:
        ValueError: there is none of this name, or it is not for this op.
        NotImplementedError: it needs two exchanges.
        TypeError: it is something else.
    """

    def __init__(self, given: AnyCompressor | None, op: ReduceOp) -> None:
        self._compressor: Any = resolve(given)
        self.codec = codec_of(self._compressor)
        if takes_two_exchanges(self._compressor):
            name = self.codec or "powersgd"
            raise NotImplementedError(
                f"compression {name!r} exchanges an array in two steps, which is not supported "
                "for JAX's arrays: use another one, such as 'int4'"
            )
        if self.codec and op not in (Sum, Average):
            raise ValueError(
                f"compression {self.codec!r} is for op 'sum' and 'average', not for {str(op)!r}: "
                "use compression='none'"
            )

    def compress(self, array: jax.Array) -> Compressed:
        """What is sent, and a function that makes the result of what comes back."""
        kind = self._compressor if isinstance(self._compressor, type) else type(self._compressor)
        if kind is NoneCompressor:
            return array, lambda result: result
        if kind in (FP16Compressor, BF16Compressor):
            narrow = jnp.dtype(kind.dtype)
            is_wider = array.dtype.itemsize > narrow.itemsize
            return _cast(array, narrow if is_wider and _is_floating(array) else array.dtype)
        if issubclass(kind, CastBack):
            if not _is_floating(array):
                raise TypeError(
                    f"compression {self.codec!r} is for floating arrays, got one of dtype "
                    f"{array.dtype}: use compression='none' for it"
                )
            return _cast(array, jnp.dtype(jnp.float32))
        sent, context = self._compressor.compress(array)
        return sent, lambda result: self._compressor.decompress(result, context)


def _is_floating(array: jax.Array) -> bool:
    return jnp.issubdtype(array.dtype, jnp.floating)


def _cast(array: jax.Array, dtype: Any) -> Compressed:
    given = array.dtype
    return array.astype(dtype), lambda result: result.astype(given)
