"""Trainings on JAX that end in the middle, and go on from `TrainingCheckpoint`'s files."""

import json
import pathlib

import numpy as np
import pytest

from tests import workers
from tests.jax.choosing import ENVIRONMENT

pytest.importorskip("jax", reason="Keras on JAX needs jax")

_PROGRAM = pathlib.Path(__file__).with_name("checkpoint_programs.py")
_CUTS = [
    ("arrays", (1, 5), 1),
    ("arrays", (1, 6), 2),
    ("dataset", (1, 5), 1),
    ("generator", (2, 0), 1),
]

pytestmark = pytest.mark.time_limit(600)


def _train(**arguments):
    return f"train={json.dumps(arguments)}"


def _run(names, count=2, **environment):
    return workers.run(_PROGRAM, names, count, **ENVIRONMENT, **environment)


def _assert_goes_on(found, whole, tolerance=0.0):
    for key, values in found["history"].items():
        expected = whole["history"][key][-len(values) :]
        np.testing.assert_allclose(values, expected, rtol=tolerance, err_msg=key)
    for one, other in zip(found["weights"], whole["weights"], strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind, cut, steps_per_execution", _CUTS)
def test_goes_on_at_the_same_batch(tmp_path, kind, cut, steps_per_execution):
    """With the same bits. What Keras executes in several steps goes on at one of these."""
    given = {"kind": kind, "steps_per_execution": steps_per_execution}
    whole = _train(folder=str(tmp_path / "whole"), **given)
    begun = _train(folder=str(tmp_path / "cut"), cut=cut, **given)
    again = _train(folder=str(tmp_path / "cut"), **given)
    group = _run([whole, begun, again])
    assert group[begun][0]["files"]
    for found in group[again]:
        _assert_goes_on(found, group[whole][0])


def test_goes_on_with_another_number_of_workers(tmp_path):
    """Dropout aside, which each worker draws for itself."""
    folder = f"{tmp_path}/a"
    _run([_train(folder=folder, cut=(1, 5))], 2)
    (found,) = _run([_train(folder=folder)], 0)[_train(folder=folder)]
    assert len(found["history"]["loss"]) == 2


def test_other_data_are_said(tmp_path):
    folder = f"{tmp_path}/a"
    again = _train(folder=folder, seed=4, kind="generator")
    group = _run([_train(folder=folder, cut=(1, 5)), again])
    assert "the data or their order are not those of the checkpoint" in group._logs[0]
    assert "the data or their order are not those of the checkpoint" not in group._logs[1]


def test_error_feedback_goes_on(tmp_path):
    """In other processes, with the same bits as in one training."""

    def name(folder, first, last):
        given = {"folder": str(tmp_path / folder), "first": first, "last": last}
        return f"train_compressed={json.dumps(given)}"

    for folder in ("whole", "cut"):
        (tmp_path / folder).mkdir()
    every = {"BYTEPS_MIN_COMPRESS_BYTES": "0"}
    whole = _run([name("whole", 0, 4)], **every)[name("whole", 0, 4)]
    _run([name("cut", 0, 2)], **every)
    cut = _run([name("cut", 2, 4)], **every)[name("cut", 2, 4)]
    for found, expected in zip(cut[0], whole[0], strict=True):
        np.testing.assert_array_equal(found, expected)
