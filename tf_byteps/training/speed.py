"""How fast this worker exchanges tensors."""

import threading
import time
from collections.abc import Callable

from tf_byteps import _engine


class _Meter:
    """Turns a growing count of bytes into a rate."""

    def __init__(
        self, count: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._count = count
        self._clock = clock
        self._lock = threading.Lock()
        self._last = None

    def rate(self) -> float:
        """Bytes per second since the last call; 0 in the first."""
        with self._lock:
            now, count = self._clock(), self._count()
            last, self._last = self._last, (now, count)
        if last is None or now <= last[0]:
            return 0.0
        # A new engine (after resume) counts from 0 again.
        sent = count - last[1] if count >= last[1] else count
        return sent / (now - last[0])


_meter = _Meter(lambda: _engine.worker_counters().get("pushed_bytes", 0))


def get_pushpull_speed() -> tuple[int, float]:
    """How fast this worker has pushed tensors since the last call; the first begins to measure.

    Returns:
        A pair: the time in milliseconds since 1970, and the speed in MB/s (10^6 bytes of tensors
        pushed to servers; what is pulled is as much again). The speed is 0.0 in the first call, and
        in a job of one worker, which sends nothing.

    Example:

    >>> time_in_ms, megabytes_per_second = tf_byteps.get_pushpull_speed()
    """
    return int(time.time() * 1000), _meter.rate() / 1e6
