"""BytePS's `compression_params`, as our compressors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tf_byteps.exchange.coded import (
    CodedCompressor,
    DitheringCompressor,
    OneBitCompressor,
    RandomKCompressor,
    TopKCompressor,
)
from tf_byteps.exchange.compressor import Compressor, FP16Compressor, NoneCompressor

# BytePS's parts, unless BYTEPS_PARTITION_BYTES was set: a whole number k is for each of them.
_PART_ELEMENTS = 4_096_000 // 4
_MOST_BITS = 8
_KEYS = ("compressor", "ef", "momentum", "scaling", "k", "seed", "partition", "normalize", "fp16")


def from_byteps(params: Mapping[str, Any]) -> type[Compressor] | Compressor:
    """The compressor for what BytePS's trainer for MXNet took as `compression_params`.

    Args:
        params: a dictionary with BytePS's keys. `seed` has no effect: random numbers follow from
            names and rounds. A whole number `k` of `topk` and `randomk` counts the elements of a
            part of 4,096,000 bytes, as BytePS cut them.

    Returns:
        What `compression` takes.

    Raises:
        ValueError: a key or value is unknown, or has no counterpart here; the message says what to
            do instead.

    Example:

    >>> params = {"compressor": "onebit", "ef": "vanilla", "scaling": True}
    >>> compression = tf_byteps.Compression.from_byteps(params)
    """
    for key in params:
        if key not in _KEYS:
            raise _error(key, params[key], f"known keys: {', '.join(_KEYS)}")
    if params.get("momentum"):
        raise _error(
            "momentum",
            params["momentum"],
            "leave momentum to the optimizer, which sees what all workers sent, as in "
            "keras.optimizers.SGD(momentum=0.9, nesterov=True)",
        )
    name = params.get("compressor")
    if not name:
        return FP16Compressor if params.get("fp16") else NoneCompressor
    if name not in _MAKERS:
        raise _error("compressor", name, f"known: {', '.join(_MAKERS)}")
    if params.get("ef") not in (None, "", "vanilla"):
        raise _error("ef", params["ef"], "only 'vanilla' exists")
    return _MAKERS[name](params)


def _error(key: str, value: object, advice: str) -> ValueError:
    return ValueError(f"compression_params: {key!r} is {value!r}: {advice}")


def _onebit(params: Mapping[str, Any]) -> CodedCompressor:
    if not params.get("scaling", True):
        raise _error("scaling", params["scaling"], "signs are always scaled, or training diverges")
    return OneBitCompressor(feedback=bool(params.get("ef")))


def _of_ratio(
    kind: Callable[..., CodedCompressor],
) -> Callable[[Mapping[str, Any]], CodedCompressor]:
    def make(params: Mapping[str, Any]) -> CodedCompressor:
        k = _number(params)
        ratio = k if k < 1 else min(1, k / _PART_ELEMENTS)
        return kind(ratio=ratio, feedback=bool(params.get("ef")))

    return make


def _dithering(params: Mapping[str, Any]) -> CodedCompressor:
    if params.get("ef"):
        raise _error("ef", params["ef"], "dithering is right on average: leave it out")
    levels = _number(params)
    bits = max(2, 1 + int(levels).bit_length())  # one for the sign
    if levels != int(levels) or bits > _MOST_BITS:
        raise _error("k", params["k"], "dithering has a whole number of levels, at most 127")
    return DitheringCompressor(
        bits=bits, partition=params.get("partition", "linear"), norm=params.get("normalize", "max")
    )


def _number(params: Mapping[str, Any]) -> float:
    k = params.get("k")
    if isinstance(k, bool) or not isinstance(k, (int, float)) or k <= 0:
        raise _error("k", k, f"{params['compressor']} needs a number above 0")
    return k


_MAKERS: dict[str, Callable[[Mapping[str, Any]], CodedCompressor]] = {
    "onebit": _onebit,
    "topk": _of_ratio(TopKCompressor),
    "randomk": _of_ratio(RandomKCompressor),
    "dithering": _dithering,
}
