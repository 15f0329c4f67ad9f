"""What makes tensors smaller on the wire: casts, and the engine's codecs."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from tf_byteps import _engine


class Compressor:
    """What is done to a tensor before it is sent and after the result has come. Subclass it to
    write another.

    All workers must use the same one for the same exchange.

    Attributes:
        codec: the name of the codec in which the engine sends what `compress` returns, which must
            be float32 then; `""`: as it is.
    """

    codec = ""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """Makes a tensor smaller.

        Args:
            tensor: a `tf.Tensor` of any shape and dtype.

        Returns:
            A pair: the `tf.Tensor` to send, and a context that `decompress` gets back.
        """
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: tf.Tensor, context: Any) -> tf.Tensor:
        """Undoes `compress`.

        Args:
            tensor: a `tf.Tensor` of the compressed dtype.
            context: the second value that `compress` returned.

        Returns:
            A `tf.Tensor` of the dtype that was given to `compress`.
        """
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: tf.Tensor, context: Any) -> tf.Tensor:
        return tensor


class _CastBack(Compressor):
    """Casts what comes back to the dtype that was given; `None`: it was not cast."""

    @staticmethod
    def decompress(tensor: tf.Tensor, context: Any) -> tf.Tensor:
        return tensor if context is None else tf.cast(tensor, context)


class _Cast(_CastBack):
    """Casts wider floating tensors; leaves integers and 16-bit floats alone."""

    dtype: tf.DType

    @classmethod
    def compress(cls, tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        if not tensor.dtype.is_floating or tensor.dtype.size <= cls.dtype.size:
            return tensor, None
        return tf.cast(tensor, cls.dtype), tensor.dtype


class FP16Compressor(_Cast):
    """Sends float32 and float64 as float16. Magnitudes above 65504 become infinite: use loss
    scaling or `bf16`."""

    dtype = tf.float16


class BF16Compressor(_Cast):
    """Sends float32 and float64 as bfloat16: the range of float32, with 8 bits of precision."""

    dtype = tf.bfloat16


class _Coded(_CastBack):
    """Has the engine encode float32 in blocks, each with a scale of its own. Other floating tensors
    are cast to float32 first. Needs op Sum or Average. See docs/compression.md.

    Rows of `tf.IndexedSlices`, and tensors below `BYTEPS_MIN_COMPRESS_BYTES`, are sent as they are.
    """

    @classmethod
    def compress(cls, tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        if not tensor.dtype.is_floating:
            raise TypeError(
                f"compression {cls.codec!r} is for floating tensors, got one of dtype "
                f"{tensor.dtype.name}: use compression='none' for it"
            )
        if tensor.dtype == tf.float32:
            return tensor, None
        return tf.cast(tensor, tf.float32), tensor.dtype


class Int8Compressor(_Coded):
    """Sends 8.5 bits for an element, both ways: blocks of 32, rounded to nearest."""

    codec = "int8"


class FP8Compressor(_Coded):
    """Sends 8.125 bits for an element, both ways: e4m3 in blocks of 128, with smaller errors than
    `int8` in small elements and larger ones in large elements."""

    codec = "fp8"


class Int4Compressor(_Coded):
    """Sends 4.5 bits for an element, stochastically rounded in blocks of 32; sums come back as
    `int8`."""

    codec = "int4"


class OneBitCompressor(_Coded):
    """Sends 1 bit for an element, its sign, and the mean magnitude of each 4096; sums come back as
    `int8`. What that loses of a gradient is added to the next one: error feedback, which keeps as
    many bytes as the gradients have."""

    codec = "onebit"


class Compression:
    """The compressors that come with tf_byteps. Servers add up in float32 and round once, whatever
    was sent.

    Example:

    >>> optimizer = tf_byteps.DistributedOptimizer(optimizer,
    compression=tf_byteps.Compression.int8)
    """

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    int8 = Int8Compressor
    fp8 = FP8Compressor
    int4 = Int4Compressor
    onebit = OneBitCompressor


# What callers give: a class with static methods, an object, or a name.
AnyCompressor = type[Compressor] | Compressor | str

_NAMED = {
    name: getattr(Compression, name)
    for name in ("none", "fp16", "bf16", "int8", "fp8", "int4", "onebit")
}


@functools.cache
def _with_options(codec: str) -> type[Compressor]:
    """That of a codec whose name has options. Raises ValueError, which says what is wrong."""
    compressor = _NAMED.get(codec.partition(":")[0], NoneCompressor)
    if not codec_of(compressor):
        known = ", ".join(repr(name) for name, each in _NAMED.items() if each.codec)
        raise ValueError(f"compression {codec!r}: options are for {known}")
    try:
        full = _engine.full_codec_name(codec)
    except _engine.EngineError as error:
        raise ValueError(f"compression: {error}") from None
    return type(compressor.__name__, (compressor,), {"codec": full})


def resolve(given: AnyCompressor | None) -> type[Compressor] | Compressor:
    """The compressor that a caller asked for.

    Args:
        given: a `Compressor` or an object with its two methods, its name in any case, perhaps with
            a codec's options, as in `"int4:feedback=1"`, or `None`.

    Returns:
        What has `compress` and `decompress`.

    Raises:
        ValueError: there is no compressor of this name, or no such option.
        TypeError: it is something else.
    """
    if given is None:
        return NoneCompressor
    if isinstance(given, str):
        if ":" in given:
            return _with_options(given.lower())
        if given.lower() not in _NAMED:
            known = ", ".join(map(repr, _NAMED))
            raise ValueError(f"unknown compression {given!r}: use one of {known}")
        return _NAMED[given.lower()]
    if not (hasattr(given, "compress") and hasattr(given, "decompress")):
        raise TypeError(f"compression must be a tf_byteps.Compressor or its name, got {given!r}")
    return given


def codec_of(compression: object) -> str:
    """The name of the engine's codec that a compressor wants, or `""`.

    Args:
        compression: what `resolve` returned; another library's has no `codec`, and no function that
            chooses has one.
    """
    return getattr(compression, "codec", "")


def of_rows(compression: type[Compressor] | Compressor) -> type[Compressor] | Compressor:
    """What is done to the rows of `tf.IndexedSlices`, which are gathered: nothing is added up on
    the way, so that codecs do not apply."""
    return NoneCompressor if codec_of(compression) else compression
