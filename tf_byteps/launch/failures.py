"""How often processes have failed lately, and when another one may be started."""

import collections
import time
from collections.abc import Hashable

# Failures count for so long.
FAILURE_SECONDS = 600.0
# Before another process is started in the place: who else has failed is known then.
_RESTART_SECONDS = 1.0
_LONGEST_RESTART_SECONDS = 30.0


class RecentFailures:
    """Counts failures of places: of hosts, or of what Ray has reserved.

    Args:
        limit: a place that has failed so often in `FAILURE_SECONDS` is not to be used any more; 0:
            however often it fails.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._times = collections.defaultdict[Hashable, list[float]](list)

    def note(self, place: Hashable) -> int:
        """A process there has failed. Returns how many have lately."""
        now = time.monotonic()
        recent = [when for when in self._times[place] if now - when < FAILURE_SECONDS] + [now]
        self._times[place] = recent
        return len(recent)

    def is_too_much(self, failures: int) -> bool:
        """Whether a place with so many failures is not to be used any more."""
        return 0 < self._limit <= failures

    def seconds_to_wait(self, failures: int) -> float:
        """Until the next one is started where so many have failed."""
        if not self._limit:
            return 0.0
        return min(_RESTART_SECONDS * 2 ** (failures - 1), _LONGEST_RESTART_SECONDS)
