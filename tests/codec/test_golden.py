"""The hashes that the C++ tests compare come from the oracle."""

import re
from pathlib import Path

import pytest

from tests.codec.golden import golden, lines

_HEADER = (Path(__file__).parents[2] / "cc" / "codec" / "testing" / "golden.h").read_text()
_SHORT = 10_000


def test_the_checked_in_hashes_of_short_inputs_are_the_oracle_s() -> None:
    rows = re.finditer(r'^ +\{".+", "\w+", (\d+), .*\n', _HEADER, re.MULTILINE)
    short = [row[0] for row in rows if int(row[1]) <= _SHORT]
    assert short and short == list(lines(_SHORT))


@pytest.mark.extended
@pytest.mark.time_limit(900)
def test_the_checked_in_hashes_are_the_oracle_s() -> None:
    assert _HEADER == golden(), "run: python -m tests.codec.golden > cc/codec/testing/golden.h"
