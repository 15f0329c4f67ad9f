"""What a scheduler records of a timeline: who came and was lost, stalls, slow links, new sizes.

These are the events of its log (docs/logs.md), whatever the log's level is.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import logging
import os
from collections.abc import Iterator

from tf_byteps import _engine
from tf_byteps.timeline.files import END, Stay, growing

# Some 2 MB of memory if nothing can be written.
MAX_EVENTS = 10_000

PID = 2_000_000  # workers have their ranks, and servers numbers from 1,000,000 on

_logger = logging.getLogger("tf_byteps")


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that has happened in the job.

    Attributes:
        time: by the scheduler's clock, in ns since 1970.
        event: its name, as docs/logs.md has it.
        message: the sentence of the log.
        fields: as docs/logs.md has them.
    """

    time: int
    event: str
    message: str
    fields: dict[str, int | str]


class _Listener(logging.Handler):
    """Keeps what Python's half of the scheduler logs. Its events are all warnings, or worse."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: collections.deque[Event] = collections.deque(maxlen=MAX_EVENTS)

    def emit(self, record: logging.LogRecord) -> None:
        name, fields = getattr(record, "byteps_event", ""), getattr(record, "byteps_fields", {})
        if name:
            time = _engine.wall_nanos()
            self.heard.append(Event(time, name, record.getMessage(), dict(fields)))


class SchedulerRecorder:
    """Records a scheduler's events, from now to `stop`.

    Args:
        configured: `Config.timeline`.
        run: see `Stay`.
    """

    def __init__(self, configured: str, run: str) -> None:
        if os.path.isdir(configured) or configured.endswith("/"):
            path = os.path.join(configured, "timeline-scheduler.json")
        else:
            root, suffix = os.path.splitext(configured)
            path = f"{root}.scheduler{suffix}"
        self._dropped, self._is_running = 0, True
        _engine.events_start(MAX_EVENTS)
        self._listener = _Listener()
        _logger.addHandler(self._listener)
        self._file = growing(path, Stay(run, 0), (PID, "scheduler"), self._lines)

    def stop(self) -> None:
        """Writes what is left. That it cannot be written goes to the log. Idempotent."""
        if not self._is_running:
            return
        self._is_running = False
        _logger.removeHandler(self._listener)
        _engine.events_stop()
        try:
            self._file.end(END)
        except OSError as error:
            _logger.error("the timeline cannot be written: %s", error)
        if self._dropped:
            _logger.warning(
                "the timeline of the scheduler ends early: %d events came after its last one",
                self._dropped,
            )

    def _lines(self) -> Iterator[str]:
        recorded, dropped = _engine.events_take()
        self._dropped += dropped
        events = [Event(*values) for values in recorded]
        while self._listener.heard:
            events.append(self._listener.heard.popleft())
        for event in sorted(events, key=lambda each: each.time):
            shown = {"ph": "i", "s": "p", "name": event.event, "cat": "event", "pid": PID, "tid": 0}
            told = {"ts": event.time // 1000, "args": dataclasses.asdict(event)}
            yield "," + json.dumps({**shown, **told})
