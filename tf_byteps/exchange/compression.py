"""The compressors by name: `Compression`, and what a caller's `compression=` means."""

from __future__ import annotations

import functools

from tf_byteps.exchange.byteps_params import from_byteps
from tf_byteps.exchange.coded import (
    AutoCompressor,
    CodedCompressor,
    DitheringCompressor,
    FP8Compressor,
    Int4Compressor,
    Int8Compressor,
    OneBitCompressor,
    RandomKCompressor,
    ThcCompressor,
    TopKCompressor,
)
from tf_byteps.exchange.compressor import BF16Compressor, Compressor, FP16Compressor, NoneCompressor
from tf_byteps.exchange.power_sgd import PowerSGDCompressor


class Compression:
    """The compressors that come with tf_byteps. Servers add up in float32 and round once, whatever
    was sent. Those with options may be called with them; see docs/compression.md.

    Example:

    >>> compression = tf_byteps.Compression.int4(feedback=True)
    >>> optimizer = tf_byteps.DistributedOptimizer(optimizer, compression=compression)
    """

    none = NoneCompressor
    auto = AutoCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    int8 = Int8Compressor
    fp8 = FP8Compressor
    int4 = Int4Compressor
    onebit = OneBitCompressor
    topk = TopKCompressor
    randomk = RandomKCompressor
    dithering = DitheringCompressor
    thc = ThcCompressor
    powersgd = PowerSGDCompressor

    from_byteps = staticmethod(from_byteps)


# What callers give: a class with static methods, an object, or a name.
AnyCompressor = type[Compressor] | Compressor | str

_NAMED: dict[str, type[Compressor]] = {
    name: getattr(Compression, name)
    for name in (
        *("none", "fp16", "bf16", "int8", "fp8", "int4", "onebit", "topk", "randomk"),
        *("dithering", "thc", "powersgd", "auto"),
    )
}


@functools.cache
def _with_options(codec: str) -> Compressor:
    """That of a codec whose name has options. Raises ValueError, which says what is wrong."""
    compressor = _NAMED.get(codec.partition(":")[0], NoneCompressor)
    if not issubclass(compressor, CodedCompressor | PowerSGDCompressor):
        known = ", ".join(repr(name) for name, each in _NAMED.items() if hasattr(each, "of_name"))
        raise ValueError(f"compression {codec!r}: options are for {known}")
    return compressor.of_name(codec)


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
        given = _NAMED[given.lower()]
    if given is PowerSGDCompressor:
        return PowerSGDCompressor()
    if not (hasattr(given, "compress") and hasattr(given, "decompress")):
        raise TypeError(f"compression must be a tf_byteps.Compressor or its name, got {given!r}")
    return given


def takes_two_exchanges(compression: object) -> bool:
    """Whether a tensor is exchanged in two steps, of which the second needs the first one's
    result."""
    return isinstance(compression, PowerSGDCompressor) or getattr(
        compression, "shares_norms", False
    )


def check_with_cross_step(compression: object) -> None:
    """Refuses compressors with which `cross_step=True` does not work.

    Args:
        compression: what `resolve` returned, or a function that chooses.

    Raises:
        ValueError: one needs two exchanges, and the step would end between them.
    """
    if takes_two_exchanges(compression):
        raise ValueError(
            f"compression {compression!r} needs two exchanges, one after the other, which "
            "cross_step=True does not support: choose one of them"
        )
