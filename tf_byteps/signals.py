"""Clean ends for processes that are told to end."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


class Interrupted(BaseException):
    """SIGINT or SIGTERM came."""


@contextlib.contextmanager
def raise_on_signals() -> Iterator[None]:
    """Turns SIGINT and SIGTERM into `Interrupted`, so that `finally` clauses run."""

    def interrupt(number: int, _: FrameType | None) -> None:
        raise Interrupted(f"ended by {signal.Signals(number).name}")

    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)
