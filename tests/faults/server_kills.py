"""Kills servers of a training, again and again; the weights must not show it.

    python -m tests.faults.server_kills --kills 100 --seed 1

The job is deterministic: the weights of every worker are bit-identical to those of an undisturbed
run. In a run all servers but one are killed, one after another; then comes the next run, until
enough have been. With `--returns` there are three servers, and one that has been killed is started
again at once. With `--compiled` XLA compiles the steps. Which one is killed, and when, is drawn
from the seed; the same seed draws the same, but the machine's timing is not in it.
"""

import dataclasses
import os
import random
import signal
import statistics
import time

from absl import flags

from benchmarks import options
from tests.cluster import Cluster, describe, outcome_of, wait_until
from tests.faults import killing
from tests.faults.training import train_classifier

WORKERS = 3
SERVERS = 11
SERVERS_THAT_RETURN = 3
STEPS_A_KILL = 25
STEPS_A_RETURN = 400  # a process starts meanwhile
_FIRST_STEP = 10  # the functions are traced, and all servers have parts
_ENVIRONMENT = {
    "BYTEPS_DETERMINISTIC": "1",
    "BYTEPS_PARTITION_BYTES": "1024",
    "BYTEPS_ENABLE_IPC": "0",  # through sockets, so that kills hit bytes in flight
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
}


@dataclasses.dataclass
class Outcome:
    """What came of a run.

    Attributes:
        digests: of the final weights of all workers.
        kills: how many servers were killed.
        around_kills: seconds that each step took in which a server was killed.
        other_steps: seconds that each of the other steps took.
        faults: what is wrong; nothing should be.
        output: of all processes, if something is.
    """

    digests: list
    kills: int
    around_kills: list
    other_steps: list
    faults: list
    output: str = ""


def run(
    kills,
    seed,
    steps,
    workers=WORKERS,
    servers=SERVERS,
    times=1,
    limit=300.0,
    say=lambda text: None,
    returns=False,
    environment=None,
    compression="none",
    jit_compile="auto",
    embeds=False,
):
    """Trains, and kills servers meanwhile; returns an `Outcome`.

    Args:
        kills: how many, fewer than there are servers (any number with `returns`).
        seed: draws which, and when.
        steps: how long to train.
        workers, servers: their numbers.
        times: how often to train; servers are killed in the first training only.
        limit: seconds after which the run counts as hanging.
        say: called with a sentence for each kill.
        returns: a server that has been killed is started again, and has come back into the job
            before the next is killed.
        environment: more variables for all processes, or a function of a process's label that
            returns them.
        compression: the strategy's.
        jit_compile: as `compile` has it.
        embeds: see `train_classifier`.
    """
    chance = random.Random(seed)
    moments = sorted(chance.randrange(_FIRST_STEP, steps - 5) for _ in range(kills))

    def variables(label):
        more = environment(label) if callable(environment) else environment
        return {**_ENVIRONMENT, **(more or {})}

    arguments = (steps, times, compression, jit_compile, embeds)
    with Cluster(train_classifier, workers, servers, variables, arguments) as cluster:
        alive = list(cluster.servers)
        killed = []
        for victim in killing.servers(cluster, alive, moments, chance, limit, say):
            killed.append(time.monotonic())
            if returns:
                alive.append(cluster.replace(victim))
                wait_until(lambda: _returns(cluster) == len(killed) or _is_over(cluster), limit)
        cluster.wait_for(cluster.workers, limit)
        outcomes = cluster.wait(20)
    dead = {p.label for p in cluster.servers if p not in alive}
    return _judge(outcomes, dead, killed)


def _is_over(cluster):
    return any(worker.popen.poll() is not None for worker in cluster.workers)


def _returns(cluster):
    return cluster.scheduler.output().count("has been started again and gets a share")


def _judge(outcomes, dead, killed):
    faults = []
    for outcome in outcomes:
        expected = -signal.SIGKILL if outcome.label in dead else 0
        if outcome.code != expected:
            faults.append(f"{outcome.label}: exit code {outcome.code}")
    results = [o.result for o in outcomes if o.label.startswith("worker") and o.result]
    scheduler = outcome_of(outcomes, "scheduler")
    lines = scheduler.output.count("training goes on with the other servers")
    if lines != len(killed):
        faults.append(f"{lines} lines in the log for {len(killed)} kills")
    digests = [digest for trainings, _ in results for digest in trainings]
    if len(set(digests)) != 1:
        faults.append(f"the workers' weights differ: {digests}")
    around, others = [], []
    for begin, end in zip(results[0][1], results[0][1][1:]) if results else ():
        (around if any(begin < k <= end for k in killed) else others).append(end - begin)
    text = describe(outcomes) if faults else ""
    return Outcome(digests, len(killed), around, others, faults, text)


def main():
    chosen = flags.FLAGS
    servers, kills_a_run, steps_a_kill = SERVERS, SERVERS - 1, STEPS_A_KILL
    environment = {}
    if chosen.returns:
        servers, kills_a_run, steps_a_kill = SERVERS_THAT_RETURN, 5, STEPS_A_RETURN
        environment["BYTEPS_HEARTBEAT_INTERVAL"] = "1"
        environment["BYTEPS_HEARTBEAT_TIMEOUT"] = "4"  # limits how long one stays lost, too
    steps = _FIRST_STEP + steps_a_kill * kills_a_run
    print(f"seed {chosen.seed}: {chosen.kills} kills", flush=True)
    jit_compile = True if chosen.compiled else "auto"
    undisturbed = run(0, 0, steps, jit_compile=jit_compile)
    assert not undisturbed.faults, undisturbed.output
    print(f"undisturbed: {undisturbed.digests[0][:16]} after {steps} steps", flush=True)
    done, number, around, others = 0, 0, [], []
    while done < chosen.kills:
        kills = min(kills_a_run, chosen.kills - done)
        seed = f"{chosen.seed} {number}"
        how = {"returns": chosen.returns, "environment": environment, "jit_compile": jit_compile}
        outcome = run(kills, seed, steps, servers=servers, say=print, **how)
        faults = list(outcome.faults)
        if set(outcome.digests) != set(undisturbed.digests):
            faults.append("the weights are not those of the undisturbed run")
        done, number = done + outcome.kills, number + 1
        around += outcome.around_kills
        others += outcome.other_steps
        print(f"{done} kills; run {number}: {faults or 'the same weights'}", flush=True)
        if faults:
            print(outcome.output[-20000:])
            return False
    print(
        f"a step took {1000 * statistics.median(others):.0f} ms (median of {len(others)}), and "
        f"{1000 * statistics.median(around):.0f} ms (median of {len(around)}; at most "
        f"{1000 * max(around):.0f} ms) if a server was killed in it"
    )
    return True


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    flags.DEFINE_integer("kills", 100, "in all runs together", lower_bound=1)
    flags.DEFINE_integer("seed", 1, "which servers are killed, and when")
    flags.DEFINE_boolean("returns", False, "start servers again")
    flags.DEFINE_boolean("compiled", False, "jit_compile=True")
    options.run(main)
