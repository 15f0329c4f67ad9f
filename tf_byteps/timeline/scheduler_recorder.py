"""What a scheduler records of a timeline: who came and was lost, stalls, slow links, new sizes.

These are the events of its log (docs/logs.md), whatever the log's level is.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Iterator

from tf_byteps.events import Events
from tf_byteps.timeline.files import END, Session, growing

# Of a job; what comes later is only counted.
MAX_EVENTS = 10_000

PID = 2_000_000  # workers have their ranks, and servers numbers from 1,000,000 on

_logger = logging.getLogger("tf_byteps")


class SchedulerRecorder:
    """Records a scheduler's events, from now to `stop`.

    Args:
        configured: `Config.timeline`.
        run: see `Session`.
        events: those of the scheduler's process.
    """

    def __init__(self, configured: str, run: str, events: Events) -> None:
        if os.path.isdir(configured) or configured.endswith("/"):
            path = os.path.join(configured, "timeline-scheduler.json")
        else:
            root, suffix = os.path.splitext(configured)
            path = f"{root}.scheduler{suffix}"
        self._dropped, self._left, self._is_running = 0, MAX_EVENTS, True
        self._events = events.reader()
        self._path = path
        self._file = growing(path, Session(run, 0), (PID, "scheduler"), self._lines)

    def stop(self) -> None:
        """Writes what is left. That it cannot be written goes to the log. Idempotent."""
        if not self._is_running:
            return
        self._is_running = False
        try:
            self._file.end(END)
            if self._left == MAX_EVENTS and self._file.path != self._path:
                os.remove(self._file.path)  # workers that had left did not come again
        except OSError as error:
            _logger.error("the timeline cannot be written: %s", error)
        if self._dropped:
            _logger.warning(
                "the timeline of the scheduler ends early: %d events came after its last one",
                self._dropped,
            )

    def _lines(self) -> Iterator[str]:
        came, dropped = self._events.take()
        recorded = came[: self._left]
        self._left -= len(recorded)
        self._dropped += dropped + len(came) - len(recorded)
        for event in recorded:
            shown = {"ph": "i", "s": "p", "name": event.event, "cat": "event", "pid": PID, "tid": 0}
            shown_event = {"ts": event.time // 1000, "args": dataclasses.asdict(event)}
            yield "," + json.dumps({**shown, **shown_event})
