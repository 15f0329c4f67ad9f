"""The signals that bpslaunch answers by itself."""

from __future__ import annotations

import os
import signal
from typing import Self

_CAUGHT = (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class CaughtSignals:
    """Signals as bytes in a pipe, from `__enter__` to `__exit__`.

    Attributes:
        descriptor: becomes readable when a signal comes.
    """

    def __init__(self) -> None:
        self.descriptor, self._end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        self._handlers = {n: signal.signal(n, lambda *_: None) for n in _CAUGHT}
        self._old_wakeup = signal.set_wakeup_fd(self._end, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._old_wakeup)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for descriptor in (self.descriptor, self._end):
            os.close(descriptor)

    def take(self) -> bytes:
        """The numbers of those that have come; SIGCHLD is among them."""
        return os.read(self.descriptor, 64)
