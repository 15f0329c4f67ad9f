"""What a worker counts of local and asynchronous steps, beside the engine's own counters.

They are zero in a training whose steps exchange gradients, and begin anew with each session.
"""

from __future__ import annotations

import collections
import logging
import threading
from collections.abc import Mapping

# A warning is due when the divergence of some weights has grown in as many rounds in a row, and
# more than doubled in them.
_ROUNDS = 5

_COUNTERS = ("outer_rounds", "late_changes", "saved_bytes", "asynchronous_steps", "stale_changes")
_GAUGES = ("steps_since_round", "divergence")

# Outer rounds that a timeline has not taken; later ones replace earlier ones.
_MOST = 10_000

_logger = logging.getLogger("tf_byteps")
_lock = threading.Lock()
_values: dict[str, float] = dict.fromkeys((*_COUNTERS, *_GAUGES), 0)
_rounds: collections.deque[tuple[int, int, int]] = collections.deque(maxlen=_MOST)


def add(key: str, number: float) -> None:
    """Counts on.

    Args:
        key: "outer_rounds" (that have ended, each fragment's counted), "late_changes" (rounds that
            ended without this worker, whose change went into its next one), "saved_bytes" (those of
            the weights in each step, as gradients would be, less those of rounds, before
            compression), "steps_since_round", "asynchronous_steps", or "stale_changes" (of other
            workers, that the servers had added since the worker took the weights that its steps
            have changed).
        number: 0 or more.
    """
    with _lock:
        _values[key] += number


def end_round(fragment: int, begin: int, end: int, divergence: float) -> None:
    """An outer round has ended.

    Args:
        fragment: its number.
        begin: when its changes were sent, in ns since 1970.
        end: when its result was taken, likewise.
        divergence: how far this worker's weights were from the average of all workers' before, by
            the Euclidean norm, relative to the average's.
    """
    with _lock:
        _values["outer_rounds"] += 1
        _values["steps_since_round"] = 0
        _values["divergence"] = divergence
    _rounds.append((begin, end, fragment))


def take_rounds() -> list[tuple[int, int, int]]:
    """The last rounds that nobody has taken: begin, end, and the fragment."""
    return [_rounds.popleft() for _ in range(len(_rounds))]


def read() -> Mapping[str, float]:
    """All, by key."""
    with _lock:
        return dict(_values)


def reset() -> None:
    """A session has ended, and so has its timeline."""
    with _lock:
        _values.update(dict.fromkeys(_values, 0))
    _rounds.clear()


class Growth:
    """Warns, once, if the workers drift apart. Not thread-safe."""

    def __init__(self) -> None:
        self._last: dict[int, collections.deque[float]] = {}
        self._has_warned = False

    def note(self, fragment: int, divergence: float) -> None:
        """Takes the relative divergence of a fragment's round."""
        last = self._last.setdefault(fragment, collections.deque(maxlen=_ROUNDS + 1))
        last.append(divergence)
        values = list(last)
        grows = all(a < b for a, b in zip(values, values[1:], strict=False))
        if self._has_warned or len(values) <= _ROUNDS or not grows or values[-1] <= 2 * values[0]:
            return
        self._has_warned = True
        _logger.warning(
            "this worker's weights were %.3g of their norm from the workers' average before the "
            "last outer round, and %.3g before the one %d rounds earlier: the workers drift apart. "
            "Shuffle the data over all workers, use fewer local steps, or a smaller learning rate "
            "(docs/local_steps.md)",
            values[-1],
            values[0],
            _ROUNDS,
        )
