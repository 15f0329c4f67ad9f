"""Trainings of JAX, with Keras and without, whose workers are killed."""

import numpy as np
import pytest

from tests.elastic import worker_kills

pytest.importorskip("jax", reason="Keras on JAX needs jax")

EPOCHS = 4
ENVIRONMENT = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
# Keras's mean of a loss is one of float32.
TOLERANCES = {"loop": 1e-12, "fit": 1e-6, "batches": 1e-6, "distributed": 1e-6}


def train(how, epochs, **options):
    return worker_kills.train(
        how, epochs, environment=ENVIRONMENT, program="jax_training", **options
    )


def assert_same_weights(outcome, undisturbed, how):
    for found, expected in zip(
        outcome.result["weights"], undisturbed.result["weights"], strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCES[how])


def test_who_is_left_finishes():
    """One of two is killed in the middle of an epoch; what was compiled is compiled for one."""
    outcome = train("loop", 3, kills=1, seed=3, workers=2, limit=200, restart=False)
    assert outcome.code == 0, outcome.output
    result = outcome.result
    assert outcome.kills == 1 and outcome.strays == []
    assert (result["least"], result["most"], result["iterations"]) == (3, 3, 87)
    assert result["size"] == 1 and result["resets"] == [1]
    assert outcome.output.count("going back to the last commit") == 1


@pytest.mark.slow
@pytest.mark.time_limit(300)
@pytest.mark.parametrize("how", ["fit backup", "distributed backup"])
def test_more_backup_workers_than_are_left(how):
    """Of three workers one is killed: of two that are left one is waited for, as of three."""
    outcome = train(how, 3, kills=1, seed=3, limit=250, restart=False)
    assert outcome.code == 0, outcome.output
    result = outcome.result
    assert result["size"] == 2 and result["resets"] == [2]
    assert (result["least"], result["most"], result["digests"]) == (3, 3, 1)
    sentence = "backup_workers is 2, but the job has 2 workers now: averages wait for one of them"
    assert sentence in outcome.output


@pytest.mark.slow
@pytest.mark.time_limit(600)
@pytest.mark.parametrize("how", ["fit backup", "distributed backup"])
def test_random_kills_with_backup_workers(how):
    """Others come in the place of those that are killed. All end with the same weights."""
    outcome = train(how, EPOCHS, kills=2, seed=2, limit=500)
    assert outcome.code == 0, outcome.output
    result = outcome.result
    assert outcome.kills == 2 and outcome.strays == []
    assert (result["least"], result["most"], result["digests"]) == (EPOCHS, EPOCHS, 1)
    # By chance it is log(10) = 2.3.
    assert result["loss"] < 1


@pytest.mark.slow
@pytest.mark.time_limit(900)
@pytest.mark.parametrize("how", list(TOLERANCES))
def test_random_kills(how):
    undisturbed = train(how, EPOCHS, workers=1, limit=300)
    assert undisturbed.code == 0, undisturbed.output
    outcome = train(how, EPOCHS, kills=4, seed=2, limit=500)
    found = worker_kills.faults(outcome, undisturbed.result, 4, EPOCHS)
    assert found == [], outcome.output
    assert_same_weights(outcome, undisturbed, how)
