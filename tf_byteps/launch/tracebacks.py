"""What of a process's last lines says why it failed."""

import re
from collections.abc import Sequence

_SHOWN_LINES = 15
_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "([^"]*)", line \d+')
_MARKS = re.compile(r" +[~^]+ *")  # below the piece of a line that has failed
_OF_A_PACKAGE = re.compile(r"/(site|dist)-packages/|/lib/python3\.\d+/|^<frozen ")


def telling_lines(lines: Sequence[str]) -> list[str]:
    """Of a process's last lines those that say why it failed, a few of them.

    Of a traceback these are the program's own frames, or else its beginning, and its end.
    """
    begins = [number for number, line in enumerate(lines) if line.startswith(_BEGIN)]
    if not begins:
        return list(lines)[-_SHOWN_LINES:]
    of_it = list(lines)[begins[-1] :]
    if any(_is_own(line) for line in of_it):
        of_it = _without_packages(of_it)
    of_it = [line for line in of_it if not _MARKS.fullmatch(line)]
    if len(of_it) <= _SHOWN_LINES:
        return of_it
    half = _SHOWN_LINES // 2
    return [*of_it[:half], "  ...", *of_it[-half:]]


def _is_own(line: str) -> bool:
    frame = _FRAME.match(line)
    return frame is not None and not _OF_A_PACKAGE.search(frame[1])


def _without_packages(lines: Sequence[str]) -> list[str]:
    """Leaves out frames of installed packages, and the lines of their sources."""
    shown = []
    is_left_out = False
    for line in lines:
        if _FRAME.match(line):
            is_left_out = not _is_own(line)
        elif not line.startswith("    "):
            is_left_out = False
        if not is_left_out:
            shown.append(line)
    return shown
