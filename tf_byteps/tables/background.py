"""What a worker does for tables beside its program, and nobody waits for."""

from __future__ import annotations

import atexit
import contextlib
import queue
import threading
from collections.abc import Callable

_JOIN_SECONDS = 5.0


class Background:
    """A thread that makes steps as long as there is something to do. Thread-safe.

    It is made when there is something to do for the first time, and ends with the process.

    Args:
        name: of the thread.
        step: makes a step. It returns in how many seconds the next one is due; `None` if there is
            none until `wake`.
    """

    def __init__(self, name: str, step: Callable[[], float | None]) -> None:
        self._name = name
        self._step = step
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._has_ended = False
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        atexit.register(self.end)

    def start(self) -> None:
        """Makes the thread, if it is not there."""
        with self._mutex:
            if self._thread is None and not self._has_ended:
                # A daemon: a program that fails does not wait for it.
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def wake(self) -> None:
        """There is something to do. May be called wherever Python frees objects."""
        self._wakes.put(None)

    def end(self) -> None:
        """The process ends: no step begins any more."""
        with self._mutex:
            self._has_ended = True
        self.wake()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        seconds = None
        while True:
            with contextlib.suppress(queue.Empty):
                self._wakes.get(timeout=seconds)
            if self._has_ended:
                return
            seconds = self._step()
