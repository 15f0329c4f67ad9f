"""Python's part of the log, in the form of the engine's lines."""

import logging

from tf_byteps import _engine

_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"
_TIME = "%Y-%m-%d %H:%M:%S"


def set_level(level: str) -> None:
    """Sets what the engine and the "tf_byteps" logger print.

    Args:
        level: "DEBUG", "INFO", "WARNING" or "ERROR".
    """
    _engine.set_log_level(level)
    logging.getLogger("tf_byteps").setLevel(level)


def print_to_standard_error() -> None:
    """For processes that are all ours: a handler for everything. Libraries leave that to users."""
    logging.basicConfig(format=_FORMAT, datefmt=_TIME)
