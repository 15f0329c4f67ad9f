"""Rows of `tf.IndexedSlices` in a codec: encoded before they are gathered, and decoded after it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_byteps.exchange.coded import AutoCompressor, Int8Compressor
from tf_byteps.exchange.compressor import Compressor, NoneCompressor, codec_of
from tf_byteps.exchange.power_sgd import PowerSGDCompressor
from tf_byteps.ops import autograph
from tf_byteps.ops.library import kernels


class CodedRows(Compressor):
    """Encodes each row by itself, in the form in which the codec's sums travel. Nothing is added up
    in between, so that all workers decode the same bytes.

    Nothing is kept for the next step: it has other rows.

    Args:
        inner: a compressor with a codec.
    """

    def __init__(self, inner: type[Compressor] | Compressor) -> None:
        self._inner = inner
        self.codec = codec_of(inner)  # on which the workers must agree

    def compress(self, tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A `tf.Tensor` of two axes becomes one of bytes, with as many rows."""
        rows, inner_context = autograph.compress(self._inner, tensor)
        width = tf.shape(rows)[1] if rows.shape[1] is None else rows.shape[1]
        with tf.device("/device:CPU:0"):
            encoded = kernels().byte_ps_encode_rows(rows, codec=self.codec)
        return encoded, (width, inner_context)

    def decompress(self, tensor: tf.Tensor, context: Any) -> tf.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        width, inner_context = context
        with tf.device("/device:CPU:0"):
            rows = kernels().byte_ps_decode_rows(tensor, tf.cast(width, tf.int64), codec=self.codec)
        return autograph.decompress(self._inner, rows, inner_context)

    # As for the compressors themselves: equal ones share a traced function.
    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._inner == self._inner

    def __hash__(self) -> int:
        return hash((CodedRows, self._inner))

    def __repr__(self) -> str:
        return f"rows in {self.codec!r}"


def of_rows(compression: type[Compressor] | Compressor) -> type[Compressor] | Compressor:
    """What is done to the rows of `tf.IndexedSlices`, which are gathered.

    Nothing with `auto`, of which only the engine knows what it is, and with `powersgd`, which needs
    matrices.
    """
    codec = codec_of(compression)
    if codec.partition(":")[0] == AutoCompressor.codec or isinstance(
        compression, PowerSGDCompressor
    ):
        return NoneCompressor
    if getattr(compression, "shares_norms", False):
        return CodedRows(Int8Compressor)  # other workers have other rows, and so other norms
    return CodedRows(compression) if codec else compression
