"""Kills workers of an elastic training, again and again, and looks at what comes of it.

    python -m tests.elastic.worker_kills --kills 100 --seed 1

bpslaunch starts a worker in the place of each. Which one is killed, and when, is drawn from the
seed; the same seed draws the same, but the machine's timing is not in it. A worker is spared if it
is the only one that has the state: when all are lost at once, nothing is left in memory.
"""

import dataclasses
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

from absl import flags

from benchmarks import options
from tests.cluster import ROOT, clean_environment
from tests.elastic.disturbing import Killer
from tests.elastic.progress import BATCHES, COMMIT

WORKERS = 3
_EPOCHS_A_KILL = 0.4
_ENVIRONMENT = {
    "BYTEPS_HEARTBEAT_INTERVAL": "1",
    "BYTEPS_HEARTBEAT_TIMEOUT": "20",
    "BYTEPS_CONNECT_TIMEOUT": "30",
    "BYTEPS_ELASTIC_TIMEOUT": "120",
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


@dataclasses.dataclass
class Outcome:
    """What came of a training.

    Attributes:
        code: bpslaunch's exit code; None if it had to be ended.
        result: see `tests.elastic.training`, or None.
        kills: how many workers were killed; or how often something else was done to them.
        seconds: how long it took.
        output: what it printed.
        strays: from where training went on that was no commit; nothing should be.
    """

    code: int | None
    result: dict | None
    kills: int
    seconds: float
    output: str
    strays: list[int]


def train(
    how,
    epochs,
    kills=0,
    seed=1,
    workers=WORKERS,
    limit=600.0,
    restart=True,
    say=lambda text: None,
    environment=None,
    program="training",
    servers=0,
    disturb=None,
):
    """Trains, and kills workers meanwhile; returns an `Outcome`.

    Args:
        how: see `tests.elastic.training`.
        epochs: how long to train.
        kills: how many workers to kill, evenly over the training.
        seed: draws whom, and when exactly.
        workers: their number.
        limit: seconds after which a training counts as hanging.
        restart: whether bpslaunch starts others in the place of those that are killed.
        say: called with a sentence for each kill.
        environment: more variables.
        program: "training", "jax_training" or a module of another folder.
        servers: processes of their own; 0: workers have them.
        disturb: makes a `Disturber` of the folder of the training, for something else than kills.
    """
    module = program if "." in program else f"tests.elastic.{program}"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        disturber = disturb(folder) if disturb else _killer(folder, epochs, kills, seed, say)
        command = [sys.executable, "-m", "tf_byteps.launch", "--min-np", "1", *disturber.options]
        command += ["--max-np", str(workers), "--host-failures", "0" if restart else "1"]
        command += ["--servers", str(servers)] if servers else []
        command += ["--", sys.executable, "-m", module, how, name, str(epochs)]
        (folder / "progress.txt").touch()
        begin = time.monotonic()
        with open(folder / "output.txt", "wb") as output:
            job = subprocess.Popen(
                command,
                cwd=ROOT,
                env=clean_environment(**{**_ENVIRONMENT, **(environment or {})}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        disturber.watch(job, module)
        try:
            while job.poll() is None and time.monotonic() < begin + limit:
                disturber.step()
                time.sleep(0.05)
        finally:
            if job.poll() is None:
                job.terminate()
                try:
                    job.wait(30)
                except subprocess.TimeoutExpired:
                    job.kill()
                code = None
            else:
                code = job.returncode
        seconds = time.monotonic() - begin
        result = None
        if (folder / "result.json").exists():
            result = json.loads((folder / "result.json").read_text())
        text = (folder / "output.txt").read_text(errors="replace")
        return Outcome(code, result, disturber.done, seconds, text, _strays(folder))


def _killer(folder, epochs, kills, seed, say):
    chance = random.Random(seed)
    # The last batches are left alone: who has finished is not started again.
    span = max(0, epochs * BATCHES - 2 * BATCHES)
    moments = sorted(chance.uniform(COMMIT, COMMIT + span) for _ in range(kills))
    return Killer(folder, moments, say, chance)


def _strays(folder):
    lines = [line.split() for line in (folder / "progress.txt").read_text().splitlines()]
    begins = {int(line[1]) for line in lines if line[0] == "begin"}
    commits = {int(line[1]) for line in lines if line[0] == "commit"} | {0}
    return sorted(begins - commits)


def faults(outcome, undisturbed, kills, epochs):
    """What is wrong with a training, as a list of sentences; nothing should be."""
    if outcome.code != 0 or outcome.result is None:
        how = "did not end" if outcome.code is None else f"ended with exit code {outcome.code}"
        return [f"the job {how}"]
    found = []
    result = outcome.result
    if outcome.kills != kills:
        found.append(f"only {outcome.kills} of {kills} times something happened to workers")
    if (result["least"], result["most"]) != (epochs, epochs):
        found.append(f"images were used {result['least']} to {result['most']} times, not {epochs}")
    if result["iterations"] != epochs * BATCHES:
        found.append(f"{result['iterations']} steps, not {epochs * BATCHES}")
    if outcome.strays:
        found.append(f"training went on from {outcome.strays}, which are no commits")
    if abs(result["loss"] / undisturbed["loss"] - 1) > 0.05:
        found.append(f"the loss is {result['loss']}, and {undisturbed['loss']} undisturbed")
    return found


def main():
    chosen = flags.FLAGS
    epochs = max(4, round(_EPOCHS_A_KILL * chosen.kills))
    print(f"seed {chosen.seed}: {chosen.kills} kills in {epochs} epochs", flush=True)
    undisturbed = train(chosen.how, epochs, workers=1)
    assert undisturbed.code == 0, undisturbed.output
    print(f"undisturbed: {undisturbed.result}, {undisturbed.seconds:.0f} s", flush=True)

    def say(text):
        print(text, flush=True)

    outcome = train(chosen.how, epochs, chosen.kills, chosen.seed, limit=chosen.limit, say=say)
    found = faults(outcome, undisturbed.result, chosen.kills, epochs)
    lost = len(re.findall("going back to the last commit", outcome.output))
    print(f"{outcome.kills} kills: {outcome.result}, {outcome.seconds:.0f} s, {lost} times back")
    if found:
        print(outcome.output[-20000:])
        print("\n".join(found))
    else:
        difference = outcome.result["loss"] / undisturbed.result["loss"] - 1
        print(f"every image was used {epochs} times; the loss differs by {100 * difference:.4f} %")
    return not found


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    flags.DEFINE_integer("kills", 100, "workers to kill", lower_bound=0)
    flags.DEFINE_integer("seed", 1, "which workers are killed, and when")
    flags.DEFINE_enum("how", "fit", ["fit", "loop", "compiled", "cross_step"], "how to train")
    flags.DEFINE_float("limit", 3600.0, "seconds until the training is ended")
    options.run(main)
