"""The hashes that the C++ tests compare come from the oracle."""

from pathlib import Path

from tests.codec.golden import golden


def test_the_checked_in_hashes_are_the_oracle_s() -> None:
    header = Path(__file__).parents[2] / "cc" / "codec" / "testing" / "golden.h"
    assert header.read_text() == golden(), (
        "run: python -m tests.codec.golden > cc/codec/testing/golden.h"
    )
