"""docs/protocol.md has every rule that the code cites, and tests cite every rule."""

import pathlib
import re

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PAGE = (_ROOT / "docs" / "protocol.md").read_text()
# "protocol rule 9", "(rule 9)", "rules 24, 35", "rules 10 and 18", also across the end of a line of
# a comment.
_CITATION = re.compile(r"\b[Rr]ules?\s+(?:(?://|#)\s*)?(\d+(?:(?:,|\s+and)\s+\d+)*)\b")
_SOURCES = {"cc": ("*.cc", "*.h"), "tf_byteps": ("*.py",), "tests": ("*.py",)}


def _cited(text):
    return {int(n) for match in _CITATION.findall(text) for n in re.findall(r"\d+", match)}


def _citations():
    """{path: rules that the file cites}."""
    files = [
        path
        for folder, patterns in _SOURCES.items()
        for pattern in patterns
        for path in (_ROOT / folder).rglob(pattern)
        if path != pathlib.Path(__file__)
    ]
    found = {path.relative_to(_ROOT): _cited(path.read_text()) for path in files}
    return {path: rules for path, rules in found.items() if rules}


def _is_test(path):
    return path.parts[0] == "tests" or path.name.endswith("_test.cc")


CITATIONS = _citations()
RULES = [int(number) for number in re.findall(r"^#### Rule (\d+):", _PAGE, re.MULTILINE)]
WITHOUT_TEST = {
    int(number)
    for number in re.findall(r"^\| (\d+) \|", _PAGE.partition("## Not there yet")[2], re.MULTILINE)
}


@pytest.mark.parametrize(
    "text, rules",
    [
        ("(protocol rule 9)", {9}),
        ("see rules 24, 35)", {24, 35}),
        ("(protocol rules 10 and 18)", {10, 18}),
        ("comes too late (protocol\n// rule 31)", {31}),
        ("placed as protocol rule\n  // 6 says", {6}),
        ("one rule in 5 places", set()),
    ],
)
def test_citations_are_found(text, rules):
    assert _cited(text) == rules


def test_rules_are_numbered_from_1_without_gaps():
    assert RULES == list(range(1, len(RULES) + 1))


@pytest.mark.parametrize("path", CITATIONS, ids=str)
def test_cited_rules_exist(path):
    assert CITATIONS[path] <= set(RULES), "docs/protocol.md has no such rule"


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_cited_by_a_test_or_said_to_have_none(rule):
    tests = [path for path, rules in CITATIONS.items() if rule in rules and _is_test(path)]
    if rule in WITHOUT_TEST:
        assert not tests, f"it has a test now: take rule {rule} off the list in docs/protocol.md"
    else:
        assert tests, f'no test says "(protocol rule {rule})"'


def test_rules_of_the_table_of_messages_exist():
    messages = _PAGE.partition("| message | from | to | rules |")[2].partition("\n\n")[0]
    assert set(map(int, re.findall(r"\b\d+\b", messages))) <= set(RULES)


def test_all_frames_and_messages_are_described():
    frames = (_ROOT / "cc/wire/frame.h").read_text()
    types = re.findall(
        r"^  (k\w+) = \d+,",
        frames.partition("enum class FrameType")[2].partition("};")[0],
        re.MULTILINE,
    )
    control = (_ROOT / "cc/wire/control.h").read_text()
    variant = re.search(r"using ControlMessage =\s+std::variant<(.*?)>;", control, re.DOTALL)
    names = types + re.findall(r"\w+", variant.group(1))
    assert len(names) > 30
    assert [name for name in names if f"`{name}`" not in _PAGE] == []
