"""Python's part of the log, in the form of the engine's lines."""

from __future__ import annotations

import datetime
import json
import logging
import os
import socket
import sys
import typing

from tf_byteps import _engine
from tf_byteps.config.variables import mention_unused_variables

if typing.TYPE_CHECKING:
    from tf_byteps.config import Config

_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"
_TIME = "%Y-%m-%d %H:%M:%S"
JSON_BEGIN = '{"time": "'  # of each line with log_format="json"
_logger = logging.getLogger("tf_byteps")


class JsonFormatter(logging.Formatter):
    """Formats a record as the engine does its messages: one JSON object on a line.

    Args:
        process: the members that every line has: role, rank and host.

    Example:

    >>> handler.setFormatter(JsonFormatter({"role": "worker", "rank": 0}))
    >>> logger.warning("a worker comes", extra=event("workers_changed", workers=3))
    {"time": "2026-01-31T12:00:00.123Z", "level": "WARNING", "role": "worker", "rank": 0,
     "event": "workers_changed", "message": "a worker comes", "workers": 3}
    """

    def __init__(self, process: dict[str, str | int]) -> None:
        super().__init__()
        self.process = process

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        members = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            **self.process,
            "event": getattr(record, "byteps_event", ""),
            "message": record.getMessage(),
            **getattr(record, "byteps_fields", {}),
        }
        if record.exc_info:
            members["traceback"] = self.formatException(record.exc_info)
        return json.dumps(members, ensure_ascii=False)


def event(name: str, **fields: str | int) -> dict[str, object]:
    """What a message tells of, for `extra` of the logger's methods. Only lines of JSON show it.

    Args:
        name: of the event. docs/logs.md lists all.
        **fields: further members of the JSON object.
    """
    return {"byteps_event": name, "byteps_fields": fields}


def configure(config: Config, rank: int | None = None) -> None:
    """Sets what the engine and the "tf_byteps" logger print, and in which form.

    Called again when a process has learnt its rank.

    Args:
        config: its `log_level`, `log_format` and role count.
        rank: of the worker or server; None: not known yet, or the scheduler.
    """
    _engine.set_log_level(config.log_level)
    _logger.setLevel(config.log_level)
    _set_form(config, rank)
    if config.speaks_for_all:
        mention_unused_variables(os.environ)


def _set_form(config: Config, rank: int | None) -> None:
    of_json = [h for h in _logger.handlers if isinstance(h.formatter, JsonFormatter)]
    if config.log_format == "text":
        for handler in of_json:
            _logger.removeHandler(handler)
        if not any(isinstance(handler, _Plain) for handler in _logger.handlers):
            _logger.addHandler(_Plain())
        _logger.propagate = _logger.propagate or bool(of_json)
        _engine.set_log_format(None)
        return
    process = _members_of(config.role, rank)
    _engine.set_log_format(process)
    handler = of_json[0] if of_json else logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(process))
    if not of_json:
        _logger.addHandler(handler)
        _logger.propagate = False  # or another handler would print it a second time, as text


class _Plain(logging.StreamHandler):
    """Prints what no handler of the program prints; Python itself would leave out the time."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(_FORMAT, _TIME))

    def emit(self, record: logging.LogRecord) -> None:
        if _logger.propagate and not logging.getLogger().handlers:
            self.stream = sys.stderr  # which notebooks and tests replace
            super().emit(record)


def _members_of(role: str, rank: int | None) -> dict[str, str | int]:
    known = {} if rank is None else {"rank": rank}
    return {"role": role, **known, "host": socket.gethostname()}


def print_to_standard_error() -> None:
    """For processes that are all ours: a handler for everything. Libraries leave that to users."""
    logging.basicConfig(format=_FORMAT, datefmt=_TIME)
