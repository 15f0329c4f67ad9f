"""How tf_byteps changes methods of other libraries while they run, without a trace in errors."""

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from tf_byteps import signatures
from tf_byteps.errors import BytePSError

# An owner, the name of its attribute, and what `wrap` replaces that by.
Change = tuple[Any, str, Callable[..., Any]]

_PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
# Raised by a line of tf_byteps itself, these are faults of it, which its frames explain.
_FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError)


# All that this process has changed.
replaced: list[Change] = []


def wrap_all(changes: Sequence[Change]) -> None:
    """As `wrap`, for each of a list; one warning names all that `signatures.check` finds."""
    signatures.check(changes)
    for change in changes:
        _replace(*change)


def wrap(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    """Replaces an attribute that can be called, if it is one that tf_byteps knows.

    Exceptions pass without frames of tf_byteps, as they pass Keras without Keras's; its switch,
    `keras.config.disable_traceback_filtering()`, shows both.

    Args:
        owner: the class or module that has it.
        name: its name.
        replacement: a function that is called with the original before the call's own arguments.

    Raises:
        BytePSError: see `signatures.check`.
    """
    wrap_all([(owner, name, replacement)])


def _replace(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return replacement(original, *args, **kwargs)
        except Exception as error:
            if _keras_hides_frames():
                hide_own_frames(error)
            raise

    setattr(owner, name, wrapper)
    replaced.append((owner, name, replacement))


def hide_own_frames(error: BaseException) -> None:
    """Takes the frames of tf_byteps out of an error's traceback, unless the fault is its own."""
    shown: list[TracebackType] = []
    is_ours = False
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        # A context manager of ours leaves a frame of contextlib.
        is_ours = name.startswith(_PACKAGE) or (is_ours and name == contextlib.__file__)
        if not is_ours:
            shown.append(trace)
        trace = trace.tb_next
    if is_ours and isinstance(error, _FAULTS):
        return
    for trace, following in zip(shown, [*shown[1:], None]):
        trace.tb_next = following
    error.__traceback__ = shown[0] if shown else None


def _keras_hides_frames() -> bool:
    keras = sys.modules.get("keras")
    try:
        return keras is not None and keras.config.is_traceback_filtering_enabled()
    except AttributeError:  # it is being imported
        return False


def shorten_uncaught_errors() -> None:
    """From now on, errors of use that nobody catches are printed without frames of tf_byteps.

    What they say is for the user, whose own line stays.
    """
    before = sys.excepthook
    if getattr(before, "byteps", False):
        return

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, BytePSError):
            hide_own_frames(error.with_traceback(trace))
            error.__cause__, error.__suppress_context__ = None, True
            trace = error.__traceback__
        before(kind, error, trace)

    hook.byteps = True  # pyright: ignore[reportFunctionMemberAccess]
    sys.excepthook = hook
