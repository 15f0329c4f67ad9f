"""Clean ends for processes that are told to end."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Interrupted(BaseException):
    """SIGINT or SIGTERM came."""


class _Deferral:
    """Of the main thread, where Python calls handlers of signals."""

    is_on = False
    interrupted: Interrupted | None = None


_deferral = _Deferral()


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Does to the end what must not be left in its middle: `Interrupted` is raised after it.

    For the main thread; others are not interrupted. Not to be nested.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _deferral.is_on = True
    try:
        yield
    finally:
        _deferral.is_on = False
        interrupted, _deferral.interrupted = _deferral.interrupted, None
        if interrupted is not None:
            raise interrupted


@contextlib.contextmanager
def raise_on_signals() -> Iterator[None]:
    """Turns SIGINT and SIGTERM into `Interrupted`, so that `finally` clauses run."""

    def interrupt(number: int, _: FrameType | None) -> None:
        interrupted = Interrupted(f"ended by {signal.Signals(number).name}")
        if _deferral.is_on:
            _deferral.interrupted = interrupted
        else:
            raise interrupted

    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)
