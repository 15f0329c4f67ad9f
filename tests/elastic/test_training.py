"""Trainings of TensorFlow whose workers are killed: nothing is lost, and nothing is done twice."""

import subprocess
import sys

import pytest

from tests.cluster import ROOT, clean_environment
from tests.elastic import worker_kills

EPOCHS = 5


def test_who_is_left_finishes():
    """One of two is killed in the middle of an epoch; what was traced is traced for one."""
    outcome = worker_kills.train("loop", 3, kills=1, seed=3, workers=2, limit=120, restart=False)
    assert outcome.code == 0, outcome.output
    result = outcome.result
    assert outcome.strays == []
    assert (result["least"], result["most"], result["iterations"]) == (3, 3, 87)
    assert result["size"] == 1 and result["resets"] == [1]
    assert outcome.output.count("going back to the last commit") == 1


@pytest.mark.extended
def test_a_quorum_goes_on_with_who_is_left():
    """One of three is killed in the middle of an epoch, and nobody comes in its place.

    In test_quorum_fits.py one is lost and another one comes.
    """
    outcome = worker_kills.train("quorum", 4, kills=1, seed=3, limit=180, restart=False)
    assert outcome.code == 0, outcome.output
    result = outcome.result
    assert outcome.kills == 1 and outcome.strays == []
    assert result["size"] == 2 and result["resets"] == [2]
    # By chance it is log(10) = 2.3. Without a loss and without a quorum it is 0.17.
    assert result["epochs"] == 4 and result["loss"] < 0.3


@pytest.fixture(scope="module")
def undisturbed():
    outcome = worker_kills.train("fit", EPOCHS, workers=1, limit=200)
    assert outcome.code == 0, outcome.output
    return outcome.result


@pytest.mark.slow
@pytest.mark.time_limit(600)
@pytest.mark.parametrize("how", ["fit", "loop", "compiled", "cross_step"])
def test_random_kills(how, undisturbed):
    if how != "fit":
        alone = worker_kills.train(how, EPOCHS, workers=1, limit=200)
        undisturbed = alone.result
    outcome = worker_kills.train(how, EPOCHS, kills=4, seed=2, limit=400)
    assert worker_kills.faults(outcome, undisturbed, 4, EPOCHS) == [], outcome.output
    assert "has no effect" not in outcome.output


@pytest.mark.slow
@pytest.mark.time_limit(200)
def test_more_backup_workers_than_are_left():
    """Of three workers one is killed: of two that are left one is waited for, as of three."""
    outcome = worker_kills.train("backup", 3, kills=1, seed=3, limit=180, restart=False)
    assert outcome.code == 0, outcome.output
    assert outcome.result["size"] == 2 and outcome.result["resets"] == [2]
    sentence = "backup_workers is 2, but the job has 2 workers now: averages wait for one of them"
    assert sentence in outcome.output


@pytest.mark.slow
@pytest.mark.time_limit(300)
def test_example():
    command = [sys.executable, "-m", "tf_byteps.launch", "--min-np", "1", "--max-np", "2", "--"]
    result = subprocess.run(
        [*command, sys.executable, "examples/keras_elastic.py"],
        cwd=ROOT,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=250,
    )
    assert result.returncode == 0, result.stdout
    assert "epoch 20" in result.stdout and "2 workers" in result.stdout
    assert "accuracy 0.9" in result.stdout
