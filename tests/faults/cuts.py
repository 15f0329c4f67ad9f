"""A network that is cut: each process on an emulated host of its own, whose cable is pulled.

Nothing says that a cut has begun, and none of the processes ends. One that is shorter than the
heartbeat timeout costs time and nothing else; a longer one ends in an error on all workers. Needs
root (network namespaces).
"""

import contextlib
import dataclasses
import random
import subprocess
import time

from benchmarks.cluster import EmulatedCluster
from tests.cluster import Cluster, describe
from tests.faults import programs, suite

BRIEF_SECONDS = 1.0
# Longer than a brief cut and the pause that TCP has fallen into by its end.
_PATIENT_TIMEOUT = 5.0
_SECONDS_AFTER_A_BRIEF_CUT = 4.0
_WORKERS, _SERVERS = 2, 2


@dataclasses.dataclass(frozen=True)
class Cut:
    """Whose cable is pulled, and for how long.

    Attributes:
        role: "worker", "server" or "scheduler".
        brief: shorter than the heartbeat timeout.
        seed: decides the moment, and the process.
    """

    role: str
    brief: bool
    seed: int = 1

    # As `suite.Case` has them.
    phase = "mid-frame"
    workers = _WORKERS

    @property
    def how(self):
        return "brief cut" if self.brief else "long cut"

    def __str__(self):
        return f"{self.role} {self.how}"


class _Network:
    """Emulated hosts, one for each process."""

    def __init__(self):
        labels = ["scheduler"]
        labels += [f"server {n}" for n in range(_SERVERS)]
        labels += [f"worker {n}" for n in range(_WORKERS)]
        self._numbers = {label: number for number, label in enumerate(labels)}
        self._hosts = EmulatedCluster(hosts=len(labels), gigabits=None)

    def __enter__(self):
        self._hosts.__enter__()
        return self

    def __exit__(self, *arguments):
        self._hosts.__exit__(*arguments)

    def place(self, label):
        number = self._numbers[label]
        return self._hosts.namespaces[number], self._hosts.addresses[number]

    def set_cable(self, label, state):
        port = f"port{self._numbers[label]}"
        switch = self._hosts.switch
        command = ["ip", "-n", switch, "link", "set", port, state]
        subprocess.run(command, check=True, timeout=30, capture_output=True)


def cases(seed=1):
    """All cases."""
    return [
        Cut(role, brief, seed)
        for role in ("worker", "server", "scheduler")
        for brief in (True, False)
    ]


def run(cut):
    """Runs a case; returns its `suite.Result`."""
    chance = random.Random(f"{cut} {cut.seed}")
    timeout = _PATIENT_TIMEOUT if cut.brief else suite.HEARTBEAT_TIMEOUT
    env = {**suite.ENVIRONMENT, "BYTEPS_HEARTBEAT_TIMEOUT": str(timeout)}
    function, arguments = programs.endure, ("mid-frame", 20)
    if cut.brief:
        function, arguments = programs.go_on, (BRIEF_SECONDS + _SECONDS_AFTER_A_BRIEF_CUT + 1,)
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(_Network())
        cluster = stack.enter_context(
            Cluster(function, _WORKERS, _SERVERS, env, arguments, network.place)
        )
        for worker in cluster.workers:
            worker.wait_for_output("working")
        group = {
            "worker": cluster.workers,
            "server": cluster.servers,
            "scheduler": [cluster.scheduler],
        }
        victim = chance.choice(group[cut.role])
        result = suite.Result(cut, victim.label)
        time.sleep(0.1 + chance.uniform(0, 0.4))
        begin = time.monotonic()
        network.set_cable(victim.label, "down")
        limit = suite.DETECTION + timeout
        time.sleep(BRIEF_SECONDS if cut.brief else limit + 0.2)
        network.set_cable(victim.label, "up")
        suite.expect_end(cluster, 40, result)
        for worker in cluster.workers:
            _check(cut, worker, victim, begin, limit, result)
        if result.faults:
            result.text += "\n" + describe(cluster.wait(0))
    return result


def _check(cut, worker, victim, begin, limit, result):
    report = worker.outcome().result
    if not report:
        return result.faults.append(f"{worker.label} has no result")
    result.rounds += report["rounds"]
    if not cut.brief:
        result.text = "error on all workers, then init again in place"
        suite.check_errors(worker.label, report, victim, begin, limit, result)
        if not report.get("back"):
            result.faults.append(f"{worker.label} did not come back")
        return None
    result.text = "training goes on"
    if report["last"] < begin + BRIEF_SECONDS:
        result.faults.append(f"{worker.label}: nothing was exchanged after the cut")
    return None
