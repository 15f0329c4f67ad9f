"""What XLA compiled is kept in a folder, and the next start of a program takes it from there."""

import os

from tf_byteps.errors import ConfigError

_FOLDER = "--tf_xla_persistent_cache_directory"
# A CPU's code may not run on another host's CPU, and a shared folder would hand it over.
_ONLY_GPUS = "--tf_xla_persistent_cache_device_types=GPU"


def flags(given: str, folder: str) -> str:
    """Adds the folder to TensorFlow's flags for XLA.

    Args:
        given: the variable TF_XLA_FLAGS as it is, may be "".
        folder: where to keep what is compiled, on each host.

    Raises:
        ConfigError: the flags name a folder already, or cannot hold this name.

    Returns:
        What TF_XLA_FLAGS is to be.

    Example:
        flags("", "cache")  # "--tf_xla_persistent_cache_directory=/home/me/cache ..."
    """
    if _FOLDER in given:
        raise ConfigError(
            f"--compile-cache is {folder}, and TF_XLA_FLAGS is {given!r}: give one of them only"
        )
    path = os.path.abspath(folder)
    if len(path.split()) != 1:
        raise ConfigError(
            f"--compile-cache is {path!r}, but TF_XLA_FLAGS cannot hold a folder with white space "
            "in its name: choose another one"
        )
    return " ".join(filter(None, [given, f"{_FOLDER}={path}", _ONLY_GPUS]))
