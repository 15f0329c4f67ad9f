"""Prints the output of many processes, each line under its process's name."""

import collections
import os
import sys
import time

_COLORS = ("cyan", "magenta", "green", "yellow", "blue", "red")
_KEPT_LINES = 15
# A line without an end (a prompt, a progress bar) is shown after this time.
_PATIENCE_SECONDS = 0.2
_READ_BYTES = 1 << 16


class Screen:
    """Standard output and error of this process, shared by all streams."""

    def __init__(self, stdout=None, stderr=None):
        self._files = {"stdout": stdout or sys.stdout, "stderr": stderr or sys.stderr}
        for file in self._files.values():
            file.reconfigure(errors="replace")  # whatever processes print can be shown somehow
        self._closed = set()  # targets that nobody reads any more
        self._open = dict.fromkeys(self._files)  # the stream whose line has no end yet
        self._color = {name: _colors(file) for name, file in self._files.items()}

    def prefix(self, label, number, target):
        """What goes before the lines of process `number`, coloured if `target` is a terminal."""
        text = f"[{label}]"
        if self._color[target]:
            from rich.style import Style

            color = _COLORS[number % len(_COLORS)]
            text = Style(color=color).render(text)
        return text + " "

    def write(self, target, stream, text):
        """Writes text that ends at the end of a line, or of what there is of it."""
        if target in self._closed:
            return
        try:
            self._write(target, stream, text)
        except BrokenPipeError:
            self._closed.add(target)
            raise

    def _write(self, target, stream, text):
        file = self._files[target]
        if self._open[target] not in (None, stream):
            file.write("\n")
            self._open[target] = None
        if self._open[target] is None:
            file.write(stream.prefix)
        file.write(text)
        self._open[target] = None if text.endswith("\n") else stream
        file.flush()

    def say(self, text):
        """A message of bpslaunch itself."""
        self.write("stderr", _OWN, f"{text}\n")


class _Own:
    prefix = "bpslaunch: "


_OWN = _Own()


class Stream:
    """One output pipe of a process.

    Args:
        descriptor: the pipe's reading end.
        screen: where to print.
        target: "stdout" or "stderr".
        prefix: goes before each line.
        kept: gets the last lines, for the report of a failure.
    """

    def __init__(self, descriptor, screen, target, prefix, kept):
        self.descriptor = descriptor
        self.prefix = prefix
        self._screen = screen
        self._target = target
        self._kept = kept
        self._rest = b""
        self._rest_since = 0.0

    def read(self):
        """Prints what has come. Returns False at the end."""
        data = os.read(self.descriptor, _READ_BYTES)
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._print(line.decode(errors="replace") + "\n")
        self._rest, self._rest_since = rest, time.monotonic()
        if not data:
            self.flush(at_end=True)
        return bool(data)

    def flush(self, at_end=False):
        """Prints a line without an end if it has been waiting long enough."""
        late = time.monotonic() - self._rest_since >= _PATIENCE_SECONDS
        if self._rest and (late or at_end):
            self._print(self._rest.decode(errors="replace") + ("\n" if at_end else ""))
            self._rest = b""

    def _print(self, text):
        self._kept.append(text.rstrip("\n"))
        self._screen.write(self._target, self, text)


def last_lines():
    """Keeps the last lines of a process."""
    return collections.deque(maxlen=_KEPT_LINES)


def _colors(file):
    if not file.isatty():
        return False
    try:
        from rich.console import Console
    except ImportError:
        return False
    console = Console(file=file)
    return console.is_terminal and not console.no_color and console.color_system is not None
