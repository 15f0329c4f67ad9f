"""Kills servers of trainings that do not exchange in each step; the weights must not show it.

    python -m tests.faults.mode_kills --kills 50 --seed 1

The modes take turns: asynchronous, bounded staleness, local steps that are averaged, DiLoCo with
fragments and a delay, and a quorum. In a run all servers but one are killed, one after another.
With local steps and DiLoCo the weights of all workers are bit-identical to those of an undisturbed
run. Asynchronous changes are whole numbers, each worker's in digits of its own: each change is in
the sum once. Rounds of a quorum add up to what the workers have brought.

Which servers are killed, and when, is drawn from the seed; the machine's timing is not in it.
"""

import dataclasses
import os
import random
import signal
from collections.abc import Callable
from typing import Any

from absl import flags

from benchmarks import options
from tests.cluster import Cluster, describe
from tests.faults import killing, mode_programs

WORKERS = 3
SERVERS = 11
STEPS_A_KILL = 12
_FIRST_STEP = 5
_ENVIRONMENT = {
    "BYTEPS_PARTITION_BYTES": "1024",
    "BYTEPS_ENABLE_IPC": "0",  # through sockets, so that kills hit bytes in flight
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
}
_DETERMINISTIC = {"BYTEPS_DETERMINISTIC": "1"}


@dataclasses.dataclass(frozen=True)
class Mode:
    """A way to train.

    Attributes:
        function: what each worker calls, with the number of steps first.
        arguments: the others.
        environment: more variables for all processes.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    environment: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def is_deterministic(self) -> bool:
        """Whether undisturbed runs have the same bits."""
        return self.environment == _DETERMINISTIC


_DILOCO = {"local_steps": 6, "outer": "diloco", "fragments": 3, "delay": 2}
MODES = {
    "asynchronous": Mode(mode_programs.stores, ("unbounded",)),
    "bounded staleness": Mode(mode_programs.stores, (2,)),
    "local steps": Mode(mode_programs.rounds, ({"local_steps": 3},), _DETERMINISTIC),
    "diloco": Mode(mode_programs.rounds, (_DILOCO,), _DETERMINISTIC),
    "quorum": Mode(mode_programs.quorum),
}


def run(mode, kills, seed, servers=SERVERS, limit=300.0, say=lambda text: None, steps=None):
    """Trains, and kills servers meanwhile.

    Args:
        mode: a key of `MODES`.
        kills: how many, fewer than there are servers.
        seed: draws which, and when.
        servers: their number.
        limit: seconds after which the run counts as hanging.
        say: called with a sentence for each kill.
        steps: of each worker. Default: as many as these kills take.

    Returns:
        What the function returned on each worker, and a list of what is wrong.
    """
    chance = random.Random(f"{mode} {seed}")
    steps = steps or steps_of(kills)
    moments = sorted(chance.randrange(_FIRST_STEP, steps - 5) for _ in range(kills))
    chosen = MODES[mode]
    environment = {**_ENVIRONMENT, **chosen.environment}
    arguments = (steps, *chosen.arguments)
    with Cluster(chosen.function, WORKERS, servers, environment, arguments) as cluster:
        alive = list(cluster.servers)
        said = lambda text: say(f"{mode}: {text}")  # noqa: E731
        for _ in killing.servers(cluster, alive, moments, chance, limit, said):
            pass
        cluster.wait_for(cluster.workers, limit)
        outcomes = cluster.wait(20)
    results = [each.result for each in outcomes if each.label.startswith("worker")]
    return results, _faults(mode, steps, outcomes, results, kills)


def compare(mode, kills, seed, **options):
    """As `run`; where undisturbed runs have the same bits, what is wrong includes other ones."""
    results, faults = run(mode, kills, seed, **options)
    if not faults and MODES[mode].is_deterministic:
        expected, faults = run(mode, 0, seed, **options, steps=steps_of(kills))
        if results != expected and not faults:
            faults = [f"not the bits of the undisturbed run: {results}, not {expected}"]
    return faults


def steps_of(kills):
    """How many steps so many kills take."""
    return _FIRST_STEP + STEPS_A_KILL * kills + 10


def _faults(mode, steps, outcomes, results, kills):
    """What is wrong, but for bits that are not those of an undisturbed run."""
    found = []
    killed = sum(each.code == -signal.SIGKILL for each in outcomes)
    if killed != kills or any(each.code not in (0, -signal.SIGKILL) for each in outcomes):
        found = [f"{killed} of {kills} were killed"]
    elif None in results:
        found = ["a worker has no result"]
    elif mode == "quorum":
        found = mode_programs.of_quorum(results)
    elif MODES[mode].is_deterministic:
        found = [] if len(set(results)) == 1 else [f"the weights of the workers differ: {results}"]
    elif results != [mode_programs.of_stores(steps, WORKERS)] * WORKERS:
        found = [f"changes are lost, or added twice: {results}"]
    return [*found, describe(outcomes)[-20000:]] if found else []


def main():
    """Kills servers in all modes in turn, until enough have been."""
    left, number = flags.FLAGS.kills, 0
    while left > 0:
        mode = list(MODES)[number % len(MODES)]
        kills, seed = min(left, SERVERS - 1), f"{flags.FLAGS.seed} {number // len(MODES)}"
        faults = compare(mode, kills, seed, say=lambda text: print(text, flush=True))
        print("\n".join([f"{mode}: {kills} kills; {'' if faults else 'nothing is lost'}", *faults]))
        if faults:
            return False
        left, number = left - kills, number + 1
    return True


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    flags.DEFINE_integer("kills", 50, "in all modes together", lower_bound=1)
    flags.DEFINE_integer("seed", 1, "which servers are killed, and when")
    options.run(main)
