"""Averages on JAX that do not wait for the last worker."""

import pathlib

import pytest

from tests import workers
from tests.jax.choosing import ENVIRONMENT

pytest.importorskip("jax", reason="Keras on JAX needs jax")

_PROGRAM = pathlib.Path(__file__).with_name("backup_programs.py")
_SLOW, _STEPS = 2, 30  # of backup_programs
_SCENARIOS = ["with_a_strategy", "without_a_strategy", "refusals"]


@pytest.fixture(scope="module")
def group():
    waits = {"BYTEPS_MAX_LAG": str(_STEPS), "BYTEPS_HEARTBEAT_INTERVAL": "0.2"}
    return workers.run(_PROGRAM, _SCENARIOS, 3, **ENVIRONMENT, **waits)


@pytest.mark.parametrize("how", _SCENARIOS[:2])
def test_the_others_go_on_and_all_weights_are_equal(group, how):
    results = group[how]
    assert len({result["digest"] for result in results}) == 1
    for result in results:
        assert result["dropped"][_SLOW] > 0
        assert result["losses"][-1] < result["losses"][0]


def test_refusals(group):
    for errors in group["refusals"]:
        kinds, messages = zip(*errors, strict=True)
        assert set(kinds) == {"ValueError"}
        assert "backup_workers is 3, but the job has 3 workers" in messages[0]
        assert "must be an integer of at least 0, got -1" in messages[1]
        assert "needs op=Average" in messages[2]
