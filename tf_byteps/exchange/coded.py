"""Compressors of the engine's codecs, one class for each, with its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tf_byteps import _engine
from tf_byteps.exchange.compressor import CastBack, cast, codec_of

if TYPE_CHECKING:
    import tensorflow as tf


class CodedCompressor(CastBack):
    """Has the engine encode float32 in blocks, each with a scale of its own. Other floating tensors
    are cast to float32 first. Needs op Sum or Average. See docs/compression.md.

    Rows of `tf.IndexedSlices` are sent as the codec's sums are, and tensors below
    `BYTEPS_MIN_COMPRESS_BYTES` as they are. All but `auto` take `start_step`: the first exchanges
    of each tensor that are sent as they are.
    """

    @classmethod
    def compress(cls, tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        if not tensor.dtype.is_floating:
            raise TypeError(
                f"compression {cls.codec!r} is for floating tensors, got one of dtype "
                f"{tensor.dtype.name}: use compression='none' for it"
            )
        if tensor.dtype == "float32":
            return tensor, None
        return cast(tensor, "float32"), tensor.dtype

    @classmethod
    def of_name(cls, name: str) -> CodedCompressor:
        """That of a codec's name with options, which the engine checks. Raises ValueError."""
        made = cls.__new__(cls)
        made._set_codec(name)
        return made

    def _set_codec(self, name: str) -> None:
        try:
            self.codec = _engine.full_codec_name(name)
        except _engine.EngineError as error:
            raise ValueError(f"compression: {error}") from None

    def _set_options(self, start_step: float = 0, **options: float) -> None:
        if start_step != 0:
            options["start_step"] = start_step
        # Not int(): the engine's error must show what came.
        values = {name: int(v) if isinstance(v, bool) else v for name, v in options.items()}
        given = ",".join(f"{name}={value}" for name, value in values.items())
        self._set_codec(f"{type(self).codec}:{given}" if given else type(self).codec)

    # A function that chooses may make a new one in each call, and a traced function is kept for
    # equal ones.
    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and codec_of(other) == self.codec

    def __hash__(self) -> int:
        return hash(self.codec)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.codec!r}>"


class Int8Compressor(CodedCompressor):
    """Sends 8.5 bits for an element, both ways: blocks of 32, rounded to nearest.

    Args:
        block: how many elements have a scale in common: a power of two from 32 to 4096.
        stochastic: whether elements are rounded up or down at random, so that they are right on
            average, instead of to nearest.
        start_step: see `CodedCompressor`.

    Raises:
        ValueError: an option is none of these.

    Example:

    >>> tf_byteps.push_pull(gradient, compression=tf_byteps.Compression.int8(block=256))
    """

    codec = "int8"

    def __init__(self, block: int = 32, stochastic: bool = False, *, start_step: int = 0) -> None:
        self._set_options(block=block, stochastic=stochastic, start_step=start_step)


class FP8Compressor(CodedCompressor):
    """Sends 8.125 bits for an element, both ways: e4m3 in blocks of 128, with smaller errors than
    `int8` in small elements and larger ones in large elements.

    Args:
        block: how many elements have a scale in common: a power of two from 32 to 4096.
        start_step: see `CodedCompressor`.

    Raises:
        ValueError: it is not.

    Example:

    >>> tf_byteps.push_pull(gradient, compression=tf_byteps.Compression.fp8(block=64))
    """

    codec = "fp8"

    def __init__(self, block: int = 128, *, start_step: int = 0) -> None:
        self._set_options(block=block, start_step=start_step)


class Int4Compressor(CodedCompressor):
    """Sends 4.5 bits for an element, stochastically rounded in blocks of 32; sums come back as
    `int8`.

    Args:
        block: how many elements have a scale in common: a power of two from 32 to 4096.
        feedback: whether each worker adds what a gradient loses to the next one: error feedback,
            which keeps as many bytes as the gradients have.
        start_step: see `CodedCompressor`.

    Raises:
        ValueError: an option is none of these.

    Example:

    >>> tf_byteps.push_pull(gradient, compression=tf_byteps.Compression.int4(feedback=True))
    """

    codec = "int4"

    def __init__(self, block: int = 32, feedback: bool = False, *, start_step: int = 0) -> None:
        self._set_options(block=block, feedback=feedback, start_step=start_step)


class OneBitCompressor(CodedCompressor):
    """Sends 1 bit for an element, its sign, and the mean magnitude of each 4096; sums come back as
    `int8`. What that loses of a gradient is added to the next one: error feedback, which keeps as
    many bytes as the gradients have.

    Args:
        feedback: `False`, for comparisons, leaves that out.
        start_step: see `CodedCompressor`.

    Raises:
        ValueError: it is neither `True` nor `False`.

    Example:

    >>> tf_byteps.push_pull(gradient, compression=tf_byteps.Compression.onebit(feedback=False))
    """

    codec = "onebit"

    def __init__(self, feedback: bool = True, *, start_step: int = 0) -> None:
        self._set_options(feedback=feedback, start_step=start_step)


class TopKCompressor(CodedCompressor):
    """Sends of each part of a gradient only the elements of the largest magnitude, as float32, and
    where they are; sums come back as `int8`. What that loses is added to the next gradient: error
    feedback, which keeps as many bytes as the gradients have.

    Args:
        ratio: which share of the elements is sent, above 0 and up to 1; at least one of each part.
        feedback: `False`, for comparisons, leaves error feedback out.
        start_step: see `CodedCompressor`.

    Raises:
        ValueError: an option is none of these.

    Example:

    >>> tf_byteps.push_pull(gradient, compression=tf_byteps.Compression.topk(ratio=0.001))
    """

    codec = "topk"

    def __init__(self, ratio: float = 0.01, feedback: bool = True, *, start_step: int = 0) -> None:
        self._set_options(ratio=ratio, feedback=feedback, start_step=start_step)


class RandomKCompressor(CodedCompressor):
    """Sends of each part of a gradient some elements that random numbers choose, as float32; sums
    come back as `int8`. What that loses is added to the next gradient: error feedback, which keeps
    as many bytes as the gradients have. An element then waits for 1 / ratio steps, on average: SGD
    with momentum may diverge at a learning rate that it stands otherwise.

    Args:
        ratio: which share of the elements is sent, above 0 and up to 1; at least one of each part.
        feedback: `False` leaves error feedback out, and divides what is sent by `ratio`, so that it
            is right on average.
        start_step: see `CodedCompressor`.

    Raises:
        ValueError: an option is none of these.

    Example:

    >>> tf_byteps.push_pull(gradient, compression=tf_byteps.Compression.randomk(ratio=0.5))
    """

    codec = "randomk"

    def __init__(self, ratio: float = 0.25, feedback: bool = True, *, start_step: int = 0) -> None:
        self._set_options(ratio=ratio, feedback=feedback, start_step=start_step)


class DitheringCompressor(CodedCompressor):
    """Sends some bits for an element: its sign, and one of the two levels around it, at random, so
    that it is right on average. Levels are shares of the norm of a block, a float32 in front of it.
    Sums come back as `int8`.

    Args:
        bits: of each element, from 2 to 8.
        block: how many elements have a norm in common: a power of two from 32 to 4096.
        partition: which levels there are besides 0: `"linear"`, evenly spaced up to 1, or
            `"natural"`, powers of two up to 1.
        norm: the largest magnitude, `"max"`, or the root of the sum of squares, `"l2"`.
        start_step: see `CodedCompressor`.

    Raises:
        ValueError: an option is none of these.

    Example:

    >>> dithering = tf_byteps.Compression.dithering(bits=3, partition="natural")
    >>> tf_byteps.push_pull(gradient, compression=dithering)
    """

    codec = "dithering"

    def __init__(
        self,
        bits: int = 4,
        block: int = 256,
        partition: str = "linear",
        norm: str = "max",
        *,
        start_step: int = 0,
    ) -> None:
        for option, value, known in (
            ("partition", partition, ("linear", "natural")),
            ("norm", norm, ("max", "l2")),
        ):
            if value not in known:
                raise ValueError(
                    f"compression 'dithering': {option} is {value!r}, must be one of {known}"
                )
        self._set_options(
            bits=bits,
            block=block,
            l2=norm == "l2",
            natural=partition == "natural",
            start_step=start_step,
        )


class ThcCompressor(CodedCompressor):
    """Sends 4 bits for an element: blocks of 4096 are rotated, and become whole numbers in units
    that all workers share. Servers add these exactly, so sums do not depend on which worker comes
    first. Sums come back in 5 bits for up to 2 workers, 6 for 4, 7 for 9, 8 for 18 and 16 for 256.

    Workers exchange norms first, so a tensor needs one more round trip. It does not work with
    `backup_workers`.

    Example:

    >>> tf_byteps.push_pull(gradient, compression=tf_byteps.Compression.thc)
    """

    codec = "thc"
    shares_norms = True


class AutoCompressor(CodedCompressor):
    """Sends gradients as they are until the links have been measured. Then all workers use `int8`
    if that is faster on these links. See docs/compression.md.

    Example:

    >>> tf_byteps.push_pull(gradient, compression=tf_byteps.Compression.auto)
    """

    codec = "auto"
