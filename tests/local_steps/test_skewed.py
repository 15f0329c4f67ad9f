"""A warning of files that may hold other labels on each worker."""

import json
import os

import pytest

from tests import workers

PROGRAM = os.path.join(os.path.dirname(__file__), "skewed_programs.py")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    scenario = f"warnings_of={json.dumps({'folder': os.fspath(tmp_path_factory.mktemp('files'))})}"
    return workers.run(PROGRAM, [scenario], 2)[scenario]


def test_files_that_are_nowhere_shuffled_are_warned_of(found):
    (warning,) = found[0]["sorted"][0]
    assert "local_steps=2" in warning and "AutoShardPolicy.FILE" in warning


@pytest.mark.parametrize(
    "kind",
    [
        "shuffled rows",
        "shuffled files",
        "parts of each batch",
        "rounds in each step",
        "synchronous",
    ],
)
def test_all_else_is_not(found, kind):
    assert found[0][kind][0] == []


def test_one_worker_says_it_and_all_rows_are_read(found):
    assert found[1]["sorted"][0] == []
    assert all(a[1] + b[1] == 16 for a, b in zip(*(each.values() for each in found), strict=True))
