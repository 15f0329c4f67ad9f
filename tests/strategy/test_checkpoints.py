"""Trainings that end at any moment, and go on from their checkpoints as if they had not."""

import json
import os
import random
import subprocess
import sys

import pytest
from checkpoint_programs import EPOCHS, SAVE_FREQ, STEPS, last_losses

from tests import workers
from tests.cluster import ROOT, clean_environment
from tests.selection import asked_values, some_long

pytestmark = pytest.mark.time_limit(620)

PROGRAM = os.path.join(os.path.dirname(__file__), "checkpoint_programs.py")
KINDS = ["dataset", "arrays", "repeated", "of unknown length", "random"]
# An epoch and a batch: within an epoch, at the step of a checkpoint, and where an epoch begins.
CUTS = [[0, 5], [1, 2], [2, 0]]
# Moments of a kill, in seconds after a batch has begun.
LONGEST = 0.03


def _scenario(function, folder, **arguments):
    return workers.scenario(function, folder=str(folder), **arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def scenarios(request, folder):
    """All that needs no process to die, by name."""
    found = {}
    kinds = asked_values(request, "kind", test_losses_are_those_of_an_undisturbed_run)
    for kind in {"dataset": None, **dict.fromkeys(kinds)}:  # other tests read that one's files
        found[f"whole {kind}"] = _scenario("train", folder / f"whole {kind}", kind=kind)
        found[f"cut {kind}"] = _scenario(
            "cut_and_go_on", folder / f"cut {kind}", kind=kind, cuts=CUTS
        )
    found["leaves"] = _scenario("train", folder / "left", leaves=True)
    found["cut while writing"] = _scenario("cut_while_writing", folder / "written late")
    found["another model"] = _scenario("error_of", folder / "whole dataset", units=9)
    found["another frequency"] = _scenario("error_of", folder / "other", of_worker_0=5)
    return found


@pytest.fixture(scope="module")
def group(scenarios):
    return workers.run(PROGRAM, list(scenarios.values()), 2)


@pytest.mark.parametrize("kind", some_long(KINDS, KINDS[2:]))
def test_losses_are_those_of_an_undisturbed_run(group, scenarios, folder, kind):
    whole, again = group[scenarios[f"whole {kind}"]], group[scenarios[f"cut {kind}"]]
    assert whole[0] == whole[1] and whole[0]["epochs"] == list(range(EPOCHS))
    assert again[0] == again[1] and again[0]["weights"] == whole[0]["weights"]
    losses = last_losses(folder / f"whole {kind}")
    assert len({values["loss"] for values in losses.values()}) == EPOCHS
    assert last_losses(folder / f"cut {kind}") == losses


def test_a_checkpoint_that_is_being_written_is_waited_for(group, scenarios):
    """By the next training of the process, after an error in the one that writes it."""
    whole, again = group[scenarios["whole dataset"]][0], group[scenarios["cut while writing"]]
    assert again[0] == again[1] and again[0]["weights"] == whole["weights"]
    assert again[0]["batches"] == EPOCHS * STEPS - SAVE_FREQ


def test_the_newest_are_kept(group, scenarios, folder):
    assert group[scenarios["whole dataset"]]
    total = EPOCHS * STEPS
    last = total // SAVE_FREQ * SAVE_FREQ
    kept = {last, last - SAVE_FREQ} if last == total else {last, total}
    names = {f"step-{step:08d}.npz" for step in kept}
    assert {path.name for path in (folder / "whole dataset" / "checkpoints").iterdir()} == names


def test_a_training_that_is_told_to_end_goes_on_with_one_worker(group, scenarios, folder):
    left = group[scenarios["leaves"]]
    assert left[0] == left[1] and 0 < left[0]["steps"] < STEPS
    again = _scenario("train", folder / "left")
    once_more = _scenario("train", folder / "left", epochs=EPOCHS + 1)
    alone = workers.run(PROGRAM, [again, once_more], 1)
    assert alone[again][0]["steps"] == EPOCHS * STEPS
    assert alone[once_more][0]["steps"] == (EPOCHS + 1) * STEPS
    assert alone[once_more][0]["epochs"] == [EPOCHS]


def test_what_does_not_fit_is_an_error(group, scenarios):
    for message in group[scenarios["another model"]]:
        assert "has checkpoints of another model: give each training its own directory" in message
        assert "[6, 16]" in message and "[6, 9]" in message
    for message in group[scenarios["another frequency"]]:
        assert message == (
            "worker 0 has the callbacks ['TrainingCheckpoint(save_freq=5)'], worker 1 has "
            "['TrainingCheckpoint(save_freq=3)']: all workers need the same ones, as they exchange"
        )


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_kills(group, scenarios, folder, tmp_path, kills):
    """A worker, or all, are killed at random; what was begun to be written does no harm."""
    whole = group[scenarios["whole dataset"]][0]
    draw = random.Random(kills)
    killed = 0
    for number in range(kills):
        # Few batches at a time, so that all kills hit.
        batches = draw.randint(1, max(1, 2 * EPOCHS * STEPS // kills))
        kill = [draw.choice([0, 1, -1]), batches, draw.uniform(0, LONGEST)]
        scenario = _scenario("train", tmp_path, kill=kill)
        group_of_kill = workers.run(PROGRAM, [scenario], 2, BYTEPS_OPERATION_TIMEOUT="20")
        killed += not group_of_kill.finished(scenario)
        # There is no folder yet if the first kill came before the first checkpoint.
        kept = sorted(path.name for path in (tmp_path / "checkpoints").glob("*"))
        print(f"kill {number}: {kill}, checkpoints {kept}")
    again = _scenario("train", tmp_path)
    result = workers.run(PROGRAM, [again], 2)[again]
    assert result[0] == result[1] and result[0]["weights"] == whole["weights"]
    losses = last_losses(folder / "whole dataset")
    assert last_losses(tmp_path) == losses
    assert killed >= kills - 1
    left = [path.name for path in (tmp_path / "checkpoints").iterdir() if "part" in path.name]
    assert left == []


@pytest.mark.slow
def test_workers_of_an_elastic_job_are_killed(tmp_path):
    """Those that stay go back to the newest checkpoint, together with those in others' place."""
    undisturbed = _scenario("train", tmp_path / "whole", kind="seeded")
    whole = workers.run(PROGRAM, [undisturbed], 2)[undisturbed][0]
    kills = {"0": [5, 0.01], "1": [14, 0.0], "2": [9, 0.02]}
    command = [sys.executable, "-m", "tf_byteps.launch", "--min-np", "2", "--max-np", "2"]
    command += ["--host-failures", "0", "--", sys.executable, PROGRAM, tmp_path, json.dumps(kills)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=clean_environment(BYTEPS_HEARTBEAT_TIMEOUT="20", TF_CPP_MIN_LOG_LEVEL="2"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "not those of the checkpoint" not in done.stdout, done.stdout
    assert done.stdout.count("failed with exit code 137") == len(kills), done.stdout
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["size"] == 2
    assert (result["weights"], result["steps"]) == (whole["weights"], whole["steps"])
    assert last_losses(tmp_path) == last_losses(tmp_path / "whole")
