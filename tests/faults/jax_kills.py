"""Kills workers and servers of trainings on JAX, whose steps are all compiled.

    python -m tests.faults.jax_kills --kills 50 --seed 1

They take turns, for a jitted loop, `fit` with the strategy and `fit` with `DistributedOptimizer`:

* workers of elastic jobs: every image is used as often as it is to be, and the weights are those of
  one worker that is undisturbed;
* servers, all but one of a job: the weights are bit-identical to those of an undisturbed run;
* a worker or the only server of a job of fixed size: each worker that is left gets an
  `ExchangeError` that says who is lost, and `fit` leaves weights that can be read.

Who is killed, and when, is drawn from the seed; the machine's timing is not in it.
"""

import os
import random
import signal
import time

import numpy as np
from absl import flags

from benchmarks import options
from tests.cluster import Cluster, describe
from tests.elastic import worker_kills
from tests.faults import jax_programs, killing

WORKERS = 3
_FIRST_STEP = 5
_STEPS_A_KILL = 12
_ENVIRONMENT = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": "1",
    "BYTEPS_PARTITION_BYTES": "1024",
    "BYTEPS_ENABLE_IPC": "0",  # through sockets, so that kills hit bytes in flight
}
_ELASTIC = {**_ENVIRONMENT, "JAX_ENABLE_X64": "1"}
# Keras's mean of a loss is one of float32.
_TOLERANCES = {"loop": 1e-12, "fit": 1e-6, "distributed": 1e-6, "batches": 1e-6}


def elastic(how, kills, seed, epochs=None, limit=900.0, say=lambda text: None):
    """Kills workers of an elastic job; returns what is wrong, a list of sentences.

    Args:
        how: see `tests.elastic.jax_training`.
        kills: how many; others come in their place.
        seed: draws whom, and when.
        epochs: how long to train. Default: as long as these kills take.
        limit: seconds after which a training counts as hanging.
        say: called with a sentence for each kill.
    """
    epochs = epochs or max(3, round(0.6 * kills) + 2)
    given = {"limit": limit, "environment": _ELASTIC, "program": "jax_training"}
    alone = worker_kills.train(how, epochs, workers=1, **given)
    if alone.code != 0:
        return [alone.output]
    outcome = worker_kills.train(how, epochs, kills=kills, seed=seed, say=say, **given)
    found = worker_kills.faults(outcome, alone.result, kills, epochs)
    if not found:
        pairs = zip(outcome.result["weights"], alone.result["weights"], strict=True)
        far = max(np.abs(np.subtract(one, other)).max() for one, other in pairs)
        if far > _TOLERANCES[how]:
            found.append(f"weights differ by {far} from those of one worker")
    return [*found, outcome.output] if found else []


def servers(how, kills, seed, limit=300.0, say=lambda text: None):
    """Kills servers, all but one; returns what is wrong.

    Args:
        how: see `jax_programs.train`.
        kills: how many.
        seed: draws which, and when.
        limit: seconds after which a training counts as hanging.
        say: called with a sentence for each kill.
    """
    steps = _FIRST_STEP + _STEPS_A_KILL * kills
    chance = random.Random(f"{how} {seed}")
    moments = sorted(chance.randrange(_FIRST_STEP, steps - 5) for _ in range(kills))
    digests = []
    said = lambda text: say(f"{how}: {text}")  # noqa: E731
    for killed_at in ([], moments):
        environment = {**_ENVIRONMENT, "BYTEPS_DETERMINISTIC": "1"}
        arguments = (how, steps)
        with Cluster(jax_programs.train, WORKERS, kills + 1, environment, arguments) as cluster:
            alive = list(cluster.servers)
            for _ in killing.servers(cluster, alive, killed_at, chance, limit, said):
                pass
            cluster.wait_for(cluster.workers, limit)
            outcomes = cluster.wait(20)
        of_workers = [each for each in outcomes if each.label.startswith("worker")]
        if any(each.code != 0 for each in of_workers):
            return ["a worker failed", describe(outcomes)]
        digests += [each.result for each in of_workers]
    return [] if len(set(digests)) == 1 else [f"the weights differ: {digests}"]


def errors(how, kills, seed, limit=120.0, say=lambda text: None, stops=False):
    """Kills one process in each of some jobs of fixed size; returns what is wrong.

    Args:
        how: see `jax_programs.until_a_fault`.
        kills: how many jobs.
        seed: draws a worker or the only server, and when.
        limit: seconds after which a job counts as hanging.
        say: called with a sentence for each kill.
        stops: whether it is a worker that is stopped. When the others have ended it goes on, and is
            to get the same error.
    """
    chance = random.Random(f"errors {how} {seed}")
    found = []
    for number in range(kills):
        is_server, rank = number % 2 == 1 and not stops, chance.randrange(WORKERS)
        moment = chance.randrange(_FIRST_STEP, 60)
        environment = {
            **_ENVIRONMENT,
            "BYTEPS_HEARTBEAT_INTERVAL": "0.5",
            "BYTEPS_HEARTBEAT_TIMEOUT": "4" if stops else "10",
            "BYTEPS_RESTART_TIMEOUT": "3",
        }
        with Cluster(jax_programs.until_a_fault, WORKERS, 1, environment, (how,)) as cluster:
            victim = cluster.servers[0] if is_server else cluster.workers[rank]
            cluster.workers[0].wait_for_output(f"step {moment}.", limit)
            time.sleep(chance.uniform(0, 0.02))
            victim.kill(signal.SIGSTOP if stops else signal.SIGKILL)
            done = "stopped" if stops else "killed"
            say(f"{how}: {victim.label} is {done} in step {moment + 1}")
            left = [each for each in cluster.workers if each is not victim]
            cluster.wait_for(left, limit)
            if stops:
                victim.kill(signal.SIGCONT)
                left.append(victim)
            outcomes = cluster.wait(30)
        role = ["server", 0] if is_server else ["worker", rank]
        for each in outcomes:
            if each.label not in [process.label for process in left]:
                continue
            result = each.result or ["no error"]
            named = f"{role[0]} {role[1]} at " in result[0]
            if result[1:] != ["UNAVAILABLE", *role, True] or not named:
                found += [f"{each.label} has {result}, and {role} was {done}", describe(outcomes)]
    return found


# How workers train, who is killed, and how many of fifty.
KINDS = [
    (elastic, "loop", 8),
    (elastic, "fit", 7),
    (elastic, "distributed", 5),
    (servers, "loop", 10),
    (servers, "fit", 10),
    (errors, "loop", 5),
    (errors, "fit", 5),
]


def main():
    chosen = flags.FLAGS
    done = 0
    while done < chosen.kills:
        for kill, how, most in KINDS:
            kills = min(most, chosen.kills - done)
            if not kills:
                continue
            found = kill(how, kills, f"{chosen.seed} {done}", say=print)
            done += kills
            print(f"{done} kills; {kill.__name__}, {how}: {found or 'as it must be'}", flush=True)
            if found:
                return False
    return True


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    flags.DEFINE_integer("kills", 50, "in all trainings together", lower_bound=1)
    flags.DEFINE_integer("seed", 1, "who is killed, and when")
    options.run(main)
