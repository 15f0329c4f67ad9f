"""Hashes of the oracle's results, which cc/codec/codec_test.cc compares with every codec's.

python -m tests.codec.golden > cc/codec/testing/golden.h
"""

import hashlib
from collections.abc import Iterator

import numpy as np

from tests.codec import oracle

_HEAD = """\
// Made by `python -m tests.codec.golden`; do not edit. The first 8 bytes of the SHA-256 of what
// tests/codec/oracle.py gives: codec number and payload, decoded elements, what they are added to.
#pragma once

#include <cstdint>

namespace byteps {

struct Golden {
  const char* codec;
  const char* values;
  uint64_t length;
  const char* payload;
  const char* stored;
  const char* added;
};

inline constexpr Golden kGolden[] = {
    // clang-format off
"""
_FOOT = """\
    // clang-format on
};

}  // namespace byteps
"""
_INPUTS = [
    *(("plain", length) for length in (0, 1, 2, 31, 32, 33, 4095, 4097, 1_000_001)),
    *((kind, 4097) for kind in ("wide", "zero", "subnormal", "nan", "infinity")),
]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def lines(longest: int) -> Iterator[str]:
    """The lines of golden.h for all inputs of up to so many elements."""
    for codec in oracle.CODECS:
        for kind, length in _INPUTS:
            if length > longest:
                continue
            number, payload = oracle.encode(codec, oracle.values(kind, length))
            stored = oracle.decode(codec, number, payload, length)
            with np.errstate(all="ignore"):
                added = oracle.one_nan(oracle.values("plain", length, salt=1) + stored)
            digests = [_digest(bytes([number]) + payload), _digest(stored), _digest(added)]
            quoted = ", ".join(f'"{digest}"' for digest in digests)
            yield f'    {{"{codec}", "{kind}", {length}, {quoted}}},\n'


def golden() -> str:
    """Returns the text of cc/codec/testing/golden.h."""
    return _HEAD + "".join(lines(max(length for _, length in _INPUTS))) + _FOOT


if __name__ == "__main__":
    print(golden(), end="")
