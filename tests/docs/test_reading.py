"""The pages that readers begin with are easy to read: short words, short sentences."""

import pathlib
import re
import sys

import pytest
from textstat import textstat

sys.path.append(str(pathlib.Path(__file__).parent))

import pages  # noqa: E402

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_NAMES = (
    "index start how_to concepts migration launchers versions api compression determinism elastic "
    "reliability security logs metrics timeline performance stragglers troubleshooting "
    "tuning questions"
).split()
_PAGES = ("README.md", *(f"docs/{name}.md" for name in _NAMES))
_LEAST_EASE = 50.0  # Flesch: 60 to 70 is plain English, below 50 is for students
_MOST_WORDS = 30
_MOST_WORDS_IN_ALL = 40_000


def _paragraphs(text):
    """A page's paragraphs and list items: no headings, tables, programs, comments, docstrings."""
    text = re.sub(r"^```.*?^```$|<!--.*?-->", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^ *(?:[#|]|:::).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "Name", text)  # code counts as a short word
    parts = re.split(r"\n\s*\n|^ *(?:[*-]|\d+\.) ", text.replace("**", ""), flags=re.MULTILINE)
    return [" ".join(part.split()) for part in parts if part.strip()]


def _sentences(text):
    return [
        sentence
        for paragraph in _paragraphs(text)
        for sentence in re.split(r"(?<=[.!?:])\s+(?=[A-Z(])", paragraph)
    ]


@pytest.mark.parametrize("page", _PAGES)
def test_it_is_easy_to_read(page):
    sentences = _sentences((_ROOT / page).read_text())
    text = " ".join(each if each[-1] in ".!?" else f"{each}." for each in sentences)
    assert textstat.flesch_reading_ease(text) >= _LEAST_EASE


@pytest.mark.parametrize("page", _PAGES)
def test_sentences_are_short(page):
    long = [s for s in _sentences((_ROOT / page).read_text()) if len(s.split()) > _MOST_WORDS]
    assert long == []


def test_users_have_little_to_read():
    """`python tests/docs/pages.py` prints the words of each page."""
    assert sum(map(pages.words, pages.of_users())) <= _MOST_WORDS_IN_ALL


def test_pages_of_users_are_those_of_the_menu_but_for_contributors():
    names = {pages.name(page) for page in pages.of_users()}
    assert {"README.md", "docs/index.md", "docs/versions.md", "docs/troubleshooting.md"} <= names
    assert names.isdisjoint({"docs/protocol.md", "docs/states.md", "docs/robustness.md"})


def test_readme_fits_on_a_screen():
    """All that stands before the table of folders, which is for those who change tf_byteps."""
    lines = (_ROOT / "README.md").read_text().splitlines()
    assert lines.index("## Where things are") <= 60


def test_what_counts_as_a_sentence():
    text = "# A title\n\nRun `make all`. Then [read](docs/start.md):\n\n* one\n* two\n\n| a | b |\n"
    assert _sentences(text) == ["Run Name.", "Then read:", "one", "two"]


def test_lists_and_tables_within_lists():
    text = "1. One.\n   Still one.\n2. two\n   * below\n\n   | a | b |\n   |---|---|\n"
    assert _sentences(text) == ["One.", "Still one.", "two", "below"]
