"""Names of exchanges, which all workers must agree on.

All workers must derive the same name for the same exchange, whatever else each of them does. So a
name is made of what the program says at this place, never of a count over the process or of an
object's address.
"""

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_MAX_BYTES = 1024
_OF_SETS = "workers{"  # names begin so that `process_sets` makes
_FRAMEWORKS = ("tensorflow", "keras", "jax")


class Frame(Protocol):
    """A call in progress, as `traceback.FrameSummary` has it."""

    @property
    def filename(self) -> str: ...
    @property
    def lineno(self) -> int | None: ...
    @property
    def name(self) -> str: ...


class _PythonFrame:
    def __init__(self, frame: Any) -> None:
        self.filename: str = frame.f_code.co_filename
        self.lineno: int | None = frame.f_lineno
        self.name: str = frame.f_code.co_name


def call_site(frames: Iterable[Frame] | None = None) -> str:
    """The place in the user's program, without this machine's folders: `"train.py:42:step"`.

    Args:
        frames: the calls in progress, the innermost first. Default: Python's.
    """
    internal = _internal()
    for frame in _python_frames() if frames is None else frames:
        path = frame.filename
        if path.startswith(internal) or "__autograph_generated_file" in path:
            continue
        return f"{_relative(path)}:{frame.lineno}:{frame.name}"
    return "unknown"


def checked(name: str) -> str:
    """A name that the user gave. Raises ValueError if it cannot be one."""
    if not isinstance(name, str) or not 0 < len(name.encode()) <= _MAX_BYTES:
        raise ValueError(f"name must be a string of 1 to {_MAX_BYTES} bytes, got {name!r}")
    if name.startswith(_OF_SETS):
        raise ValueError(f"name must not begin with {_OF_SETS!r}, got {name!r}: pass process_set")
    return name


def in_scope(scope: str, name: str) -> str:
    """`name` below the prefix `scope`, which may be empty or end in a slash already."""
    return f"{scope.rstrip('/')}/{name}" if scope else name


def _python_frames() -> Iterator[Frame]:
    frame = sys._getframe(1)
    while frame is not None:
        yield _PythonFrame(frame)
        frame = frame.f_back


def _internal() -> tuple[str, ...]:
    """Beginnings of paths that are never the place in the user's program."""
    loaded = [sys.modules.get(name) for name in _FRAMEWORKS]
    files = [module.__file__ for module in loaded if module is not None and module.__file__]
    return (
        *(os.path.dirname(os.path.abspath(file)) + os.sep for file in files),
        _PACKAGE + os.sep,
        contextlib.__file__,
        functools.__file__,
        threading.__file__,
        "<",
    )


def _relative(path: str) -> str:
    """`path` below its import folder: equal on machines that keep the program elsewhere."""
    folders = [os.path.abspath(folder or os.curdir) + os.sep for folder in sys.path]
    containing = [folder for folder in folders if path.startswith(folder)]
    return path[len(max(containing, key=len)) :] if containing else os.path.basename(path)
