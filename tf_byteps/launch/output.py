"""Prints the output of many processes, each line under its process's name."""

from __future__ import annotations

import collections
import datetime
import os
import re
import sys
import time
import typing
from typing import IO, TextIO

from tf_byteps import logs
from tf_byteps.errors import ConfigError
from tf_byteps.launch.log_folder import LogFolder
from tf_byteps.launch.open_line import OpenLine, columns_of, folded, place_of
from tf_byteps.launch.plan import Task

_COLORS = ("cyan", "magenta", "green", "yellow", "blue", "red")
_KEPT_LINES = 200  # of a process
# A line without an end (a prompt, a progress bar) is shown after this time.
_PATIENCE_SECONDS = 0.2
_READ_BYTES = 1 << 16
_ERASE = "\r\x1b[K"  # a terminal's line


# The last ones of a process.
Lines = collections.deque[str]


class Writer(typing.Protocol):
    """Who prints lines.

    Attributes:
        prefix: goes before each line.
        line: what it has printed of the last line, to the end of the text that it prints now.
    """

    prefix: str
    line: str


class Screen:
    """Standard output and error of this process, shared by all streams.

    Args:
        stdout, stderr: other files.
        timestamps: whether each line begins with the time at which it is printed.
    """

    def __init__(
        self, stdout: TextIO | None = None, stderr: TextIO | None = None, timestamps: bool = False
    ) -> None:
        self._files = {"stdout": stdout or sys.stdout, "stderr": stderr or sys.stderr}
        for file in self._files.values():
            # Whatever processes print can be shown somehow.
            file.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
        self._timestamps = timestamps
        self._closed = set()  # targets that nobody reads any more
        # One for both, if they are one terminal or one file.
        lines = {place_of(file): OpenLine() for file in self._files.values()}
        self._open = {name: lines[place_of(file)] for name, file in self._files.items()}
        self._color = {name: _colors(file) for name, file in self._files.items()}
        self._is_terminal = {name: file.isatty() for name, file in self._files.items()}
        self._erased: set[Writer] = set()  # whose open line has made room for others' lines

    def prefix(self, label: str, number: int, target: str) -> str:
        """What goes before the lines of process `number`, coloured if `target` is a terminal."""
        text = f"[{label}]"
        if self._color[target]:
            from rich.style import Style

            color = _COLORS[number % len(_COLORS)]
            text = Style(color=color).render(text)
        return text + " "

    def write(self, target: str, stream: Writer, text: str) -> None:
        """Writes text that ends at the end of a line, or of what there is of it.

        A progress bar writes its line again and again: what is before the last "\\r" has been
        replaced already.
        """
        if target in self._closed:
            return
        try:
            self._write(target, stream, text)
        except BrokenPipeError:
            self._closed.add(target)
            raise

    def _write(self, target: str, stream: Writer, text: str) -> None:
        file, line = self._files[target], self._open[target]
        columns = columns_of(file)
        again = _ERASE if self._is_terminal[target] else "\r"
        if line.owner not in (None, stream):
            file.write(self._make_room(line, self._is_terminal[target]))
        _, replaces, text = text.rpartition("\r")
        if replaces and line.owner is stream:
            line.clear()
            file.write(again)
        if stream in self._erased:
            self._erased.remove(stream)
            text = text if replaces else stream.line
        # A line of JSON says itself whose it is, and programs read it.
        if line.owner is None and not text.startswith(logs.JSON_BEGIN):
            text = self._time() + stream.prefix + text
        if text.endswith("\n"):
            file.write(line.clear() + text)
        else:
            file.write(line.add(text, columns))
            line.owner = stream
            line.is_replaced = line.is_replaced or bool(replaces)
        file.flush()

    def _make_room(self, line: OpenLine, is_terminal: bool) -> str:
        """What ends another's open line. A bar comes again, below: it need not stay there."""
        if is_terminal and line.is_replaced and line.owner is not None:
            self._erased.add(line.owner)
            line.clear()
            return _ERASE
        return line.clear() + "\n"

    def _time(self) -> str:
        """With the offset from UTC, as hosts may be in several zones."""
        if not self._timestamps:
            return ""
        return datetime.datetime.now().astimezone().isoformat(" ", "milliseconds") + " "

    def say(self, text: str) -> None:
        """A message of bpslaunch itself."""
        prefix = self._time() + _OWN.prefix
        text = folded(text, prefix, columns_of(self._files["stderr"]))
        self.write("stderr", _OWN, f"{text}\n")


class _Own:
    prefix = "bpslaunch: "
    line = ""  # it prints whole ones


_OWN = _Own()


def say(text: str) -> None:
    """A message of bpslaunch itself, where there is no `Screen`."""
    print(_OWN.prefix + folded(text, _OWN.prefix, columns_of(sys.stderr)), file=sys.stderr)


class Stream:
    """One output pipe of a process.

    Args:
        descriptor: the pipe's reading end.
        screen: where to print.
        target: "stdout" or "stderr".
        prefix: goes before each line.
        kept: gets the last lines, for the report of a failure.
        log: a `LogFile` that gets all that comes, or None.
        is_shown: whether the screen gets it.
        reported: lines in which this is found are not shown: somebody else reports it.
    """

    def __init__(
        self,
        descriptor: int,
        screen: Screen,
        target: str,
        prefix: str,
        kept: Lines,
        log: LogFile | None = None,
        is_shown: bool = True,
        reported: re.Pattern[str] | None = None,
    ) -> None:
        self.descriptor = descriptor
        self.prefix = prefix
        self._screen = screen
        self._target = target
        self._kept = kept
        self._rest = b""
        self._rest_since = 0.0
        self.line = ""
        self._log = log
        self._is_shown = is_shown
        self._reported = reported

    def read(self) -> bool:
        """Prints what has come. Returns False at the end."""
        data = os.read(self.descriptor, _READ_BYTES)
        if self._log is not None:
            self._log.write(data)
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._print(line.decode(errors="replace").removesuffix("\r") + "\n")
        if lines or not self._rest:  # else it has waited already
            self._rest_since = time.monotonic()
        self._rest = rest
        if not data:
            self.flush(at_end=True)
        return bool(data)

    def hide(self) -> None:
        """Shows nothing from now on; a log file still gets it."""
        self._is_shown = False

    def flush(self, at_end: bool = False) -> None:
        """Prints a line without an end if it has been waiting long enough."""
        late = time.monotonic() - self._rest_since >= _PATIENCE_SECONDS
        # Some bars end with "\r": it is kept for what takes their place.
        text = self._rest.rstrip(b"\r")
        has_begun = bool(self._rest or self.line)
        if (text and late) or (has_begun and at_end):
            self._print(text.decode(errors="replace") + ("\n" if at_end else ""))
            self._rest = b"" if at_end else self._rest[len(text) :]
            self._rest_since = time.monotonic()

    def _print(self, text: str) -> None:
        self.line = (self.line + text).rpartition("\r")[2]
        if text.endswith("\n"):
            self._kept.append(self.line.rstrip("\n"))
        if self._is_shown and not (self._reported and self._reported.search(text)):
            self._screen.write(self._target, self, text)
        if text.endswith("\n"):
            self.line = ""


class LogFile:
    """All that a process prints, without prefixes.

    Args:
        path: of the file, for messages.
        file: the open file.
        screen: where an error is said.
    """

    def __init__(self, path: str, file: IO[bytes], screen: Screen) -> None:
        self._path, self._screen = path, screen
        self._file: IO[bytes] | None = file

    def write(self, data: bytes) -> None:
        """Writes; after an error, which is said once, it does nothing more."""
        try:
            if self._file is not None:
                self._file.write(data)
        except OSError as error:
            self._screen.say(f"{self._path} cannot be written: {error.strerror}")
            self.close()

    def close(self) -> None:
        """Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


class Choice:
    """Which output goes where.

    Args:
        folder: a `LogFolder`, which gets a file for each process; None: no files.
        ranks: the workers whose output is shown, a set; None: all. That of others always is.
    """

    def __init__(self, folder: LogFolder | None = None, ranks: set[int] | None = None) -> None:
        self._folder, self._ranks = folder, ranks

    def open_log(self, task: Task, screen: Screen) -> LogFile | None:
        """A task's `LogFile`, or None.

        Raises:
            ConfigError: it cannot be written.
        """
        return None if self._folder is None else LogFile(*self._folder.open(task), screen)

    @property
    def where(self) -> str:
        """Where the files are, for the last line."""
        return f"; logs in {self._folder.path}" if self._folder else ""

    def shows(self, task: Task) -> bool:
        """Whether the screen gets a task's output."""
        return task.role != "worker" or self._ranks is None or task.number in self._ranks


def read_ranks(text: str) -> set[int] | None:
    """Reads "0,4-7", or "all", which is None.

    Raises:
        ConfigError: the text has another form.
    """
    ranks = set()
    for entry in text.split(","):
        first, dash, last = entry.strip().partition("-")
        if text.strip() == "all":
            return None
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ConfigError(
                f'--show {text}: {entry!r} is neither a rank nor a range such as "4-7"'
            )
        ranks.update(range(int(first), int(last or first) + 1))
    return ranks


def last_lines() -> Lines:
    """Keeps the last lines of a process."""
    return collections.deque(maxlen=_KEPT_LINES)


def _colors(file: TextIO) -> bool:
    if not file.isatty():
        return False
    try:
        from rich.console import Console
    except ImportError:
        return False
    console = Console(file=file)
    return console.is_terminal and not console.no_color and console.color_system is not None
