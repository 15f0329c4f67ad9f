"""What is done to a tensor before it is sent and after the result has come: nothing, or a cast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tf_byteps import runtime

if TYPE_CHECKING:
    import tensorflow as tf


def cast(tensor: tf.Tensor, dtype: tf.DType | str) -> tf.Tensor:
    """`tf.cast`: a compressor can be chosen without TensorFlow, but its methods are for tensors."""
    import tensorflow as tf

    return tf.cast(tensor, dtype)


class Compressor:
    """What is done to a tensor before it is sent and after the result has come. Subclass it to
    write another.

    All workers must use the same one for the same exchange.

    Attributes:
        codec: the name of the codec in which the engine sends what `compress` returns, which must
            be float32 then; `""`: as it is.
        shares_norms: whether that is sent in units that all workers share
            (tf_byteps/ops/compression/shared_norms.py).
    """

    codec = ""
    shares_norms = False

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


class CastBack(Compressor):
    """Casts what comes back to the dtype that was given; `None`: it was not cast."""

    @staticmethod
    def decompress(tensor: tf.Tensor, context: Any) -> tf.Tensor:
        return tensor if context is None else cast(tensor, context)


class _Cast(CastBack):
    """Casts wider floating tensors; leaves integers and 16-bit floats alone."""

    dtype: str
    size: int  # of an element, in bytes

    @classmethod
    def compress(cls, tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        if not tensor.dtype.is_floating or tensor.dtype.size <= cls.size:
            return tensor, None
        return cast(tensor, cls.dtype), tensor.dtype


class FP16Compressor(_Cast):
    """Sends float32 and float64 as float16. Magnitudes above 65504 become infinite: use loss
    scaling or `bf16`."""

    dtype, size = "float16", 2


class BF16Compressor(_Cast):
    """Sends float32 and float64 as bfloat16: the range of float32, with 8 bits of precision."""

    dtype, size = "bfloat16", 2


def is_long(tensor: tf.Tensor) -> bool:
    """Whether a tensor has `BYTEPS_MIN_COMPRESS_BYTES`, as far as its shape says.

    Args:
        tensor: what would be sent.

    Returns:
        True also where that is not known yet.
    """
    if not (tensor.shape.is_fully_defined() and runtime.is_initialized()):
        return True
    elements = tensor.shape.num_elements() or 0
    return elements * tensor.dtype.size >= runtime.config().min_compress_bytes


def codec_of(compression: object) -> str:
    """The name of the engine's codec that a compressor wants, or `""`.

    Args:
        compression: what `resolve` returned; another library's has no `codec`, and no function that
            chooses has one.
    """
    return getattr(compression, "codec", "")
