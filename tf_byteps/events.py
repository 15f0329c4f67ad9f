"""The events that this process has logged: those of docs/logs.md.

They are there whatever the log's level is.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
import threading

from tf_byteps import _engine

# That a reader has not taken yet; some 2 MB of memory.
MAX_EVENTS = 10_000

_logger = logging.getLogger("tf_byteps")


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that has happened.

    Attributes:
        time: by this process's clock, in ns since 1970.
        event: its name, as docs/logs.md has it.
        message: the sentence of the log.
        fields: as docs/logs.md has them.
    """

    time: int
    event: str
    message: str
    fields: dict[str, int | str]


class _Listener(logging.Handler):
    """Keeps what Python's half of the process logs. Its events are all warnings, or worse.

    Python prints by itself what no handler takes. This one takes nothing from anybody.
    """

    def __init__(self) -> None:
        super().__init__()
        self.heard: collections.deque[Event] = collections.deque(maxlen=MAX_EVENTS)

    def emit(self, record: logging.LogRecord) -> None:
        name, fields = getattr(record, "byteps_event", ""), getattr(record, "byteps_fields", {})
        if name:
            time = _engine.wall_nanos()
            self.heard.append(Event(time, name, record.getMessage(), dict(fields)))
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and not self._has_company(record):
            last.handle(record)

    def _has_company(self, record: logging.LogRecord) -> bool:
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False


class Events:
    """Those of this process from now on, until `stop`. One at a time; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: list[Reader] = []
        self._listener = _Listener()
        _engine.events_start(MAX_EVENTS)
        _logger.addHandler(self._listener)

    def reader(self) -> Reader:
        """Somebody who gets all that happens from now on."""
        made = Reader(self)
        self._readers.append(made)
        return made

    def stop(self) -> None:
        """What has happened until now can still be taken. Idempotent."""
        _logger.removeHandler(self._listener)
        _engine.events_stop()

    def collect(self) -> None:
        """Hands to the readers what has happened meanwhile."""
        with self._lock:
            recorded, dropped = _engine.events_take()
            came = [Event(*values) for values in recorded]
            while self._listener.heard:
                came.append(self._listener.heard.popleft())
            for reader in self._readers:
                reader.add(sorted(came, key=lambda each: each.time), dropped)


class Reader:
    """See `Events.reader`."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._came: collections.deque[Event] = collections.deque()
        self._dropped = 0

    def add(self, came: list[Event], dropped: int) -> None:
        """For `Events`: of what nobody takes, the newest are counted only."""
        room = MAX_EVENTS - len(self._came)
        self._came.extend(came[:room])
        self._dropped += dropped + max(0, len(came) - room)

    def take(self) -> tuple[list[Event], int]:
        """What has happened since the last call, in order, and how much more was dropped."""
        self._events.collect()
        came = [self._came.popleft() for _ in range(len(self._came))]
        dropped, self._dropped = self._dropped, 0
        return came, dropped
