"""Casts that make tensors smaller on the wire."""

import tensorflow as tf


class Compressor:
    """What is done to a tensor before it is sent and after the result has come. Subclass it to
    write another.

    All workers must use the same one for the same exchange.
    """

    @staticmethod
    def compress(tensor):
        """Makes a tensor smaller.

        Args:
            tensor: a `tf.Tensor` of any shape and dtype.

        Returns:
            A pair: the `tf.Tensor` to send, and a context that `decompress` gets back.
        """
        raise NotImplementedError

    @staticmethod
    def decompress(tensor, context):
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
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, context):
        return tensor


class _Cast(Compressor):
    """Casts wider floating tensors; leaves integers and 16-bit floats alone."""

    dtype = None

    @classmethod
    def compress(cls, tensor):
        if not tensor.dtype.is_floating or tensor.dtype.size <= cls.dtype.size:
            return tensor, None
        return tf.cast(tensor, cls.dtype), tensor.dtype

    @staticmethod
    def decompress(tensor, context):
        return tensor if context is None else tf.cast(tensor, context)


class FP16Compressor(_Cast):
    """Sends float32 and float64 as float16. Magnitudes above 65504 become infinite: use loss
    scaling or `bf16`."""

    dtype = tf.float16


class BF16Compressor(_Cast):
    """Sends float32 and float64 as bfloat16: the range of float32, with 8 bits of precision."""

    dtype = tf.bfloat16


class Compression:
    """The compressors that come with tf_byteps. Servers add up in float32 and round once, whatever
    was sent.

    Example:

    >>> optimizer = tf_byteps.DistributedOptimizer(optimizer,
    compression=tf_byteps.Compression.fp16)
    """

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


_NAMED = {"none": NoneCompressor, "fp16": FP16Compressor, "bf16": BF16Compressor}


def resolve(given):
    """The compressor that a caller asked for.

    Args:
        given: a `Compressor` or an object with its two methods, its name in any case, or `None`.

    Returns:
        What has `compress` and `decompress`.

    Raises:
        ValueError: there is no compressor of this name.
        TypeError: it is something else.
    """
    if given is None:
        return NoneCompressor
    if isinstance(given, str):
        if given.lower() not in _NAMED:
            known = ", ".join(map(repr, _NAMED))
            raise ValueError(f"unknown compression {given!r}: use one of {known}")
        return _NAMED[given.lower()]
    if not (hasattr(given, "compress") and hasattr(given, "decompress")):
        raise TypeError(f"compression must be a tf_byteps.Compressor or its name, got {given!r}")
    return given
