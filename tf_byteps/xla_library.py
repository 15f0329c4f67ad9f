"""The library with the handlers of XLA's calls, whichever framework brings XLA."""

import ctypes
import functools
import os

_PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libtf_byteps_xla.so")


@functools.cache
def library() -> ctypes.CDLL:
    """The library, loaded once in a process.

    Raises:
        ImportError: it is missing.
    """
    if not os.path.exists(_PATH):
        raise ImportError(f"{_PATH} is missing: build the package first (pip install .)")
    found = ctypes.CDLL(_PATH)
    found.byteps_wait_for_exchanges_on_cuda.restype = ctypes.c_char_p
    found.byteps_end_failed_programs_on_cuda.restype = None
    return found


def wait_for_exchanges() -> str:
    """Blocks until all exchanges that programs have begun on a GPU have ended.

    A program's stream goes on when an exchange fails, with a wrong result. So does the program.

    Returns:
        `""`, or the engine's code and sentence about one that has failed since the last call.
    """
    return library().byteps_wait_for_exchanges_on_cuda().decode()


def end_failed_programs() -> None:
    """To be called when a compiled program has failed, before anything else runs.

    XLA frees the memory of a program that fails. On a GPU the engine may still read it for an
    exchange that the program has begun. Blocks until it has let go. Costs nothing if all exchanges
    have ended, and on a CPU, where the engine has copies.
    """
    library().byteps_end_failed_programs_on_cuda()
