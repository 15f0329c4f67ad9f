"""The Python blocks of README and the docs run, each as a comment above it says: see blocks.py."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

_FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.append(str(_FOLDER))

from blocks import ROOT, Block, blocks  # noqa: E402

from tests import workers  # noqa: E402
from tests.selection import asked_values  # noqa: E402

BLOCKS = blocks()
_PROGRAMS = str(_FOLDER / "block_programs.py")

pytestmark = pytest.mark.time_limit(400)


def _named(chosen):
    return [pytest.param(each, id=each.name) for each in chosen]


def test_there_are_blocks():
    assert len(BLOCKS) > 15
    assert {"README.md", "docs/start.md"} <= {each.page for each in BLOCKS}


@pytest.mark.parametrize("block", _named(BLOCKS))
def test_the_comment_above_a_block_says_how_it_runs(block):
    assert block.is_understood, f"see tests/docs/blocks.py: {block.said!r}"
    if block.run_by:
        test = ROOT / block.run_by
        assert pathlib.Path(block.page).name in test.read_text()


@pytest.mark.parametrize("block", _named(BLOCKS))
def test_all_names_are_known(block):
    assert block.unknown_names() == [], "import them, or say which the reader has"


def _scenario(block):
    return f"run={json.dumps({'name': block.name})}"


# Op determinism cannot be turned off again in a process.
_ON_WORKERS = sorted(
    (each for each in BLOCKS if each.runs_on_workers), key=lambda each: "determinism" in each.text
)


def _first_of_each_page_everyday():
    pages = set()
    for each in _ON_WORKERS:
        is_first = each.page not in pages
        pages.add(each.page)
        yield pytest.param(each, id=each.name, marks=() if is_first else pytest.mark.extended)


@pytest.fixture(scope="module")
def ran(request):
    chosen = asked_values(request, "block", test_it_runs_on_two_workers)
    return workers.run(_PROGRAMS, [_scenario(each) for each in chosen], 2)


@pytest.mark.parametrize("block", list(_first_of_each_page_everyday()))
def test_it_runs_on_two_workers(ran, block):
    assert ran[_scenario(block)] == [2, 2]


@pytest.mark.parametrize("block", _named(each for each in BLOCKS if each.is_alone))
def test_it_runs_alone(block, tmp_path):
    """What follows a last line as a comment is what it gives."""
    *_, last = block.text.splitlines()
    assignment, _, expected = last.partition("  # ")
    program = tmp_path / "program.py"
    shown = assignment.partition(" = ")[0]
    program.write_text(block.text + f'\nif __name__ == "__main__":\n    print("gives", {shown})\n')
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=240, env=environment
    )
    assert f"gives {expected}\n" in ended.stdout, ended.stdout + ended.stderr


def test_what_is_wrong_is_found():
    block = Block("docs/tea.md", 1, "import keras\nmodel.fit(tea, batch_size=2)\n", "given: model")
    assert block.unknown_names() == ["tea"]
    assert not Block("docs/tea.md", 1, "", "for the reader").is_understood
