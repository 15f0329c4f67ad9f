"""docs/states.md draws the state machines as the tables in their sources have them."""

import pathlib
import re

from tools.state_diagrams import diagrams

_PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/states.md"


def test_the_page_has_the_diagrams_of_the_sources():
    drawn = re.findall(r"```mermaid\n(.*?)\n```", _PAGE.read_text(), re.DOTALL)
    assert sorted(drawn) == sorted(diagrams().values()), "see tools/state_diagrams.py"
    assert len(drawn) == 15
