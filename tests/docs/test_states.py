"""docs/states.md draws the state machines as the tables in their sources have them."""

import pathlib
import re
import types
import xml.etree.ElementTree as ET

import pytest

from tools import site_hooks
from tools.state_diagrams import diagrams
from tools.state_pictures import svg

_PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/states.md"


def test_the_page_has_the_diagrams_of_the_sources():
    drawn = re.findall(r"```mermaid\n(.*?)\n```", _PAGE.read_text(), re.DOTALL)
    assert sorted(drawn) == sorted(diagrams().values()), "see tools/state_diagrams.py"
    assert len(drawn) == 15


def _texts(picture):
    return [each.text for each in ET.fromstring(picture).iter() if each.tag.endswith("text")]


@pytest.mark.parametrize("title, diagram", diagrams().items(), ids=diagrams())
def test_a_picture_has_all_states_and_events(title, diagram):
    rows = re.findall(r"(\w+) --> (\w+): (.*)", diagram)
    states = {name for row in rows for name in row[:2]}
    events = [event for row in rows for event in row[2].split(", ")]
    assert sorted(_texts(svg(diagram))) == sorted([*states, *events])


def test_a_state_stands_below_the_one_that_leads_to_it():
    picture = ET.fromstring(
        svg("stateDiagram-v2\n    [*] --> A\n    A --> B: go\n    B --> A: back")
    )
    space = "{http://www.w3.org/2000/svg}"
    y = {each.text: float(each.get("y")) for each in picture.iter(f"{space}text")}
    assert y["A"] < y["go"] == y["back"] < y["B"]
    straight, around = [each.get("d") for each in picture.iter(f"{space}path")]
    assert straight == "M 0 16 V 60"
    assert around.startswith("M -") and around.count("H") == 2


def test_the_site_has_pictures_in_place_of_diagrams():
    file = types.SimpleNamespace(src_uri="states.md")
    page = types.SimpleNamespace(file=file, meta={})
    shown = site_hooks.on_page_markdown(_PAGE.read_text(), page)
    assert "mermaid" not in shown
    assert shown.count("<svg") == len(diagrams())


def test_other_pages_have_no_diagrams_of_mermaid():
    """The site would show them as they are written."""
    pages = [path for path in _PAGE.parent.glob("*.md") if path != _PAGE]
    assert [path.name for path in pages if "```mermaid" in path.read_text()] == []


def _way_of_a_loss():
    """The numbered steps: functions, and the file that they are in."""
    section = _PAGE.read_text().partition("## The way of a loss\n")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d+\. (.*?)(?=\n\d+\. |\n\n)", section, re.DOTALL | re.MULTILINE)
    for step in steps:
        (path,) = re.findall(r"`(cc/[\w/]+\.cc)`", step)
        yield re.findall(r"`(\w+::\w+)`", step), path


def test_the_way_of_a_loss_is_that_of_the_sources():
    for functions, path in _way_of_a_loss():
        source = (_PAGE.parents[1] / path).read_text()
        assert functions, path
        for function in functions:
            assert re.search(rf"^\w.*\b{function}\(", source, re.MULTILINE), (function, path)


def test_the_way_of_a_loss_goes_forward():
    files = [path for _, path in _way_of_a_loss()]
    assert len(files) == 10
    assert len(files) - len(set(files)) == 1
