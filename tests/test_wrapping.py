"""Whose frames an error shows."""

import contextlib
import os
import subprocess
import sys
import traceback

import pytest

import tf_byteps
from tests.cluster import clean_environment
from tf_byteps.wrapping import hide_own_frames

_OURS = os.path.join(os.path.dirname(tf_byteps.__file__), "ours.py")


def raise_within(error):
    """Raises through a function of tf_byteps, and at a line of it if that is an error."""
    names = {}
    text = "def call(f):\n    return f()\ndef fail(error):\n    raise error\n"
    exec(compile(text, _OURS, "exec"), names)
    if isinstance(error, BaseException):
        return names["fail"](error)
    return names["call"](error)


def frames(error):
    return [frame.filename for frame in traceback.extract_tb(error.__traceback__)]


def test_an_error_of_the_program_shows_its_own_frames():
    with pytest.raises(KeyError) as caught:
        raise_within(lambda: {}["missing"])
    assert _OURS in frames(caught.value)
    hide_own_frames(caught.value)
    assert set(frames(caught.value)) == {__file__}


def test_what_tf_byteps_says_shows_the_programs_frames():
    with pytest.raises(ValueError) as caught:
        raise_within(ValueError("the workers' data differ"))
    hide_own_frames(caught.value)
    assert set(frames(caught.value)) == {__file__}


def test_a_context_of_tf_byteps_leaves_no_frame():
    names = {"contextlib": contextlib}
    lines = ["@contextlib.contextmanager", "def context():", "    try:", "        yield"]
    lines += ["    except KeyError:", "        raise ValueError('short') from None"]
    lines += ["def call(f):", "    with context():", "        f()", ""]
    exec(compile("\n".join(lines), _OURS, "exec"), names)
    with pytest.raises(ValueError) as caught:
        names["call"](lambda: {}["missing"])
    assert contextlib.__file__ in frames(caught.value)
    hide_own_frames(caught.value)
    assert set(frames(caught.value)) == {__file__}


def test_a_fault_of_tf_byteps_shows_where_it_is():
    with pytest.raises(AttributeError) as caught:
        raise_within(AttributeError("no attribute"))
    hide_own_frames(caught.value)
    assert frames(caught.value)[-1] == _OURS


def test_a_wrong_setting_is_a_sentence_below_the_programs_line(tmp_path):
    program = tmp_path / "train.py"
    program.write_text("import tf_byteps\n\ntf_byteps.init()\n")
    env = clean_environment(TF_CONFIG="{")
    done = subprocess.run([sys.executable, program], env=env, capture_output=True, text=True)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[:3] == [
        "Traceback (most recent call last):",
        f'  File "{program}", line 3, in <module>',
        "    tf_byteps.init()",
    ]
    assert lines[3].startswith("tf_byteps.errors.ConfigError: TF_CONFIG is not JSON")
    assert len(lines) == 4
