"""CHANGELOG.md has this version and what is to come, in the form that it names."""

import pathlib
import re

import tf_byteps

_CHANGELOG = (pathlib.Path(__file__).resolve().parents[2] / "CHANGELOG.md").read_text()
_KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_this_version_is_there():
    versions = re.findall(r"^## (\S+)(?: – (\d{4}-\d{2}-\d{2}))?$", _CHANGELOG, re.MULTILINE)
    assert versions[0] == ("Unreleased", "")
    assert tf_byteps.__version__ == versions[1][0]
    assert all(date for _, date in versions[1:])


def test_kinds_of_changes_are_the_usual_ones():
    assert set(re.findall(r"^### (.*)$", _CHANGELOG, re.MULTILINE)) <= _KINDS
