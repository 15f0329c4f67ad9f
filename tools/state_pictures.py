"""Draws Mermaid's state diagrams as SVG, so that the site needs no script from another site.

States stand in a column, in the order of the table. An arrow to the next state is straight. Others
go around, each on a lane of its own: forwards on the right, backwards on the left, short ones
inside.
"""

import dataclasses
import html
import re

_ARROW = re.compile(r"^ *(\w+|\[\*\]) --> (\w+)(?:: (.*))?$", re.MULTILINE)

_LETTER, _LINE = 7, 15  # the width of a letter, about, and a line's height
_BOX, _ROW = 32, 76  # a state's height, and from one state to the next
_PORT = 7  # between the ends of two arrows at one state
_SPACE = 12


@dataclasses.dataclass
class _Arrow:
    """An arrow, by the rows of its states.

    Attributes:
        first: the row of the state that it leaves.
        last: the row of the state that it leads to.
        events: what leads from one to the other, a line for each.
        x: its lane; 0 for a straight one.
    """

    first: int
    last: int
    events: list[str]
    x: float = 0

    @property
    def is_straight(self) -> bool:
        return self.last == self.first + 1

    @property
    def span(self) -> int:
        return abs(self.last - self.first)

    @property
    def width(self) -> int:
        return max(map(len, self.events)) * _LETTER + 2 * _SPACE


def svg(diagram: str) -> str:
    """The picture of a state diagram.

    Args:
        diagram: what `state_diagrams.diagrams` returns of one.

    Returns:
        An SVG element without empty lines, which takes its colors from the page.
    """
    found = _ARROW.findall(diagram)
    names = list(dict.fromkeys(name for row in found for name in row[:2] if name != "[*]"))
    arrows = [
        _Arrow(names.index(before), names.index(after), events.split(", "))
        for before, after, events in found
        if before != "[*]"
    ]
    half = max(len(name) for name in names) * _LETTER / 2 + _SPACE
    left, right = _lanes(arrows, half)
    parts = [_start(names.index(found[0][1]))] if found[0][0] == "[*]" else []
    parts += [_state(name, row, half) for row, name in enumerate(names)]
    ends: dict[tuple[int, bool], int] = {}
    parts += [_drawn(arrow, half, ends) for arrow in sorted(arrows, key=lambda each: each.span)]
    height = (len(names) - 1) * _ROW + _BOX / 2 + 28
    return (
        f'<svg class="states" viewBox="{-left:g} -24 {left + right:g} {height:g}" '
        f'width="{left + right:g}" style="max-width: 100%" role="img" font-size="13" '
        'fill="none" stroke="currentColor" xmlns="http://www.w3.org/2000/svg">\n'
        + "\n".join(parts)
        + "\n</svg>"
    )


def _lanes(arrows: list[_Arrow], half: float) -> tuple[float, float]:
    """Gives arrows that go around their lanes; returns how far the picture reaches on each side."""
    widest = max((each.width for each in arrows if each.is_straight), default=0)
    reach = {True: max(half, widest) + _SPACE, False: half + _SPACE}
    for arrow in sorted(arrows, key=lambda each: (each.span, each.first)):
        if not arrow.is_straight:
            forwards = arrow.last > arrow.first
            arrow.x = reach[forwards] if forwards else -reach[forwards]
            reach[forwards] += arrow.width
    return reach[False] + _SPACE, reach[True] + _SPACE


def _start(row: int) -> str:
    y = row * _ROW - _BOX / 2
    return f'<circle cx="0" cy="{y - 4:g}" r="4" fill="currentColor"/>'


def _state(name: str, row: int, half: float) -> str:
    y = row * _ROW
    return (
        f'<rect x="{-half:g}" y="{y - _BOX / 2:g}" width="{2 * half:g}" height="{_BOX}" rx="6"/>'
        f"{_text(0, y + 4, 'middle', name)}"
    )


def _drawn(arrow: _Arrow, half: float, ends: dict[tuple[int, bool], int]) -> str:
    """The arrow and its events; `ends` counts those that end at each side of a state."""
    if arrow.is_straight:
        top, bottom = arrow.first * _ROW + _BOX / 2, arrow.last * _ROW - _BOX / 2
        line, tip = f"M 0 {top:g} V {bottom:g}", _tip(0, bottom, "down")
    else:
        forwards = arrow.last > arrow.first
        side = half if forwards else -half
        y1, y2 = (_port(row, forwards, ends) for row in (arrow.first, arrow.last))
        line = f"M {side:g} {y1:g} H {arrow.x:g} V {y2:g} H {side:g}"
        tip = _tip(side, y2, "left" if forwards else "right")
    return f'<path d="{line}"/>{tip}{_label(arrow)}'


def _label(arrow: _Arrow) -> str:
    """The events beside the arrow, between two rows: lanes of others end in rows."""
    row = min(arrow.first, arrow.last) - (arrow.span == 0)  # of one to itself: above
    y = row * _ROW + _ROW / 2 + 4 - (len(arrow.events) - 1) * _LINE / 2
    x, anchor = arrow.x + _SPACE / 2, "start"
    if not arrow.is_straight and arrow.last <= arrow.first:
        x, anchor = arrow.x - _SPACE / 2, "end"
    return "".join(
        _text(x, y + number * _LINE, anchor, event) for number, event in enumerate(arrow.events)
    )


def _port(row: int, forwards: bool, ends: dict[tuple[int, bool], int]) -> float:
    """Where the next arrow ends at this side of a state: 0, then above and below by turns."""
    number = ends.get((row, forwards), 0)
    ends[row, forwards] = number + 1
    return row * _ROW + (number + 1) // 2 * _PORT * (-1) ** number


def _tip(x: float, y: float, direction: str) -> str:
    dx, dy = {"down": (0, -1), "left": (1, 0), "right": (-1, 0)}[direction]
    sides = [(x + 7 * dx + s * 4 * dy, y + 7 * dy + s * 4 * dx) for s in (-1, 1)]
    points = " ".join(f"{a:g},{b:g}" for a, b in [(x, y), *sides])
    return f'<polygon points="{points}" fill="currentColor"/>'


def _text(x: float, y: float, anchor: str, text: str) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="currentColor" stroke="none">'
        f"{html.escape(text)}</text>"
    )
