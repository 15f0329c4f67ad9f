"""Lines of a terminal or a file: the last one while it has no end, and those that are too long."""

from __future__ import annotations

import dataclasses
import os
import re
import textwrap
import typing
import unicodedata
from typing import TextIO

if typing.TYPE_CHECKING:
    from tf_byteps.launch.output import Writer

_ESCAPE = re.compile(r"(\x1b\[[0-9;?]*[A-Za-z])")  # colours: they take no room
_INDENT = "    "
_LEAST_COLUMNS = 40


@dataclasses.dataclass
class OpenLine:
    """A line without an end.

    Attributes:
        owner: who writes it; None: there is no such line.
        width: columns that are taken.
        hidden: what does not fit into the terminal's width. It is printed when the line ends; what
            is to be replaced, as a progress bar is, must not take a second line.
        is_replaced: whether its owner writes it again and again.
    """

    owner: Writer | None = None
    width: int = 0
    hidden: str = ""
    is_replaced: bool = False

    def add(self, text: str, columns: int | None) -> str:
        """What is to be printed of a text that goes on with the line.

        Args:
            text: without the end of a line.
            columns: the terminal's; None: it is none.
        """
        if columns is None:
            return text
        if self.hidden:
            self.hidden += _ESCAPE.sub("", text)
            return ""
        shown, hidden = [], []
        for number, piece in enumerate(_ESCAPE.split(text)):
            if number % 2:
                shown.append(piece)
                continue
            for character in piece:
                width = 2 if unicodedata.east_asian_width(character) in "WF" else 1
                fits = not hidden and self.width + width < columns
                self.width += width if fits else 0
                (shown if fits else hidden).append(character)
        self.hidden = "".join(hidden)
        return "".join(shown)

    def clear(self) -> str:
        """Forgets the line; returns what has not been seen of it."""
        hidden = self.hidden
        self.owner, self.width, self.hidden, self.is_replaced = None, 0, "", False
        return hidden


def place_of(file: TextIO) -> object:
    """What a file is: equal for those that are one terminal, one pipe or one file on a disk."""
    try:
        status = os.fstat(file.fileno())
    except OSError:  # a file in memory
        return id(file)
    return status.st_dev, status.st_ino


def columns_of(file: TextIO) -> int | None:
    """A terminal's width as it is now; None: it is no terminal, or does not say."""
    try:
        return os.get_terminal_size(file.fileno()).columns or None
    except OSError:
        return None


def folded(text: str, prefix: str, columns: int | None) -> str:
    """A sentence of bpslaunch in lines of a terminal, which would cut words.

    Args:
        text: one line. One that begins with a space is somebody else's, and stays as it is.
        prefix: what is printed before it.
        columns: the terminal's; None: it is none, and programs may read the line.
    """
    if columns is None or text.startswith(" "):
        return text
    lines = textwrap.wrap(
        prefix + text,
        max(columns - 1, _LEAST_COLUMNS),
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).removeprefix(prefix)
