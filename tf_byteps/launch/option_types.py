"""What the options of bpslaunch may be: numbers, seconds, ports.

Each function reads a word of the command line, as argparse wants it.
"""

import argparse
import math

from tf_byteps.config import OPTIONS
from tf_byteps.errors import ConfigError


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def positive(text: str) -> int:
    """A whole number from 1."""
    number = whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def port(text: str) -> str:
    """The number of a port, as text."""
    if not 1 <= whole(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port: 1 to 65535")
    return text


def ports(text: str) -> str:
    """A range of ports, as text; see BYTEPS_PORTS."""
    try:
        OPTIONS["ports"].read(text)
    except ConfigError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not {OPTIONS['ports'].kind.description}"
        ) from None
    return text


def not_negative(text: str) -> int:
    """A whole number from 0."""
    number = whole(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return number


def seconds(text: str) -> float:
    """Seconds, from 0."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not (math.isfinite(number) and number >= 0):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds from 0")
    return number
