"""CONTRIBUTING.md says in which few files a newcomer begins."""

import pathlib
import re

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_SECTION = (_ROOT / "CONTRIBUTING.md").read_text().partition("## Where do I …?\n")[2]
_ROWS = dict(
    re.findall(r"^\| ([a-z][^|]*) \| ([^|]*`[^|]*) \|$", _SECTION.partition("\n## ")[0], re.M)
)
_MOST_FILES = 3


def test_the_tasks_of_a_newcomer_are_there():
    assert list(_ROWS) == [
        "add a reduction",
        "find why a push waits",
        "change a default",
        "add a launcher environment",
        "add an optimizer hook",
    ]


@pytest.mark.parametrize("task", _ROWS)
def test_a_task_names_few_files_that_exist(task):
    paths = re.findall(r"`([^`]+)`", _ROWS[task])
    assert 1 <= len(paths) <= _MOST_FILES
    assert [path for path in paths if not (_ROOT / path).is_file()] == []
