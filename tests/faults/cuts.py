"""A network that is cut: each process on an emulated host of its own.

Its cable is pulled, or a firewall drops its packets: nothing says that such a cut has begun, and
none of the processes ends. One that is shorter than the heartbeat timeout costs time and nothing
else; a longer one ends in an error on all workers, or, if it was a server's, in training with the
other server. Or all of its connections are destroyed: they
are made again, and training goes on. Needs root (network namespaces).
"""

import contextlib
import dataclasses
import functools
import os
import random
import shutil
import subprocess
import sys
import time

from benchmarks.cluster import EmulatedCluster
from benchmarks.sessions import within
from tests.cluster import Cluster, describe
from tests.faults import programs, suite

BRIEF_SECONDS = 1.0
# Longer than a brief cut and the pause that TCP has fallen into by its end.
_PATIENT_TIMEOUT = 5.0
_SECONDS_AFTER_A_BRIEF_CUT = 4.0
_SERVERS = 2
WAYS = ("brief cut", "long cut", "brief drop", "long drop", "destroyed")
_PROBE = f"byteps-faults-probe-{os.getpid()}"


@dataclasses.dataclass(frozen=True)
class Cut:
    """Whose network is cut, and how.

    Attributes:
        role: "worker", "server" or "scheduler".
        how: one of `WAYS`: a cable that is pulled (cut), packets that are dropped (drop), for
            shorter or longer than the heartbeat timeout; or connections that are destroyed.
        workers: their number; there are two servers.
        seed: decides the moment, and the process.
    """

    role: str
    how: str
    workers: int = 2
    seed: int = 1

    # As `suite.Case` has it.
    phase = "mid-frame"

    @property
    def is_survived(self):
        return not self.how.startswith("long")

    def __str__(self):
        return f"{self.role} {self.how} {self.workers} workers"


class _Network:
    """Emulated hosts, one for each process."""

    def __init__(self, workers):
        labels = ["scheduler"]
        labels += [f"server {n}" for n in range(_SERVERS)]
        labels += [f"worker {n}" for n in range(workers)]
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

    def begin(self, cut, label):
        if cut.how == "destroyed":
            # Those to other hosts. A connection that is being made is none yet.
            filters = ["state", "established", "dst", "10/8"]
            listed = _run_in(self.place(label)[0], "ss", "-H", "-K", "-t", *filters)
            assert listed.strip(), f"{label} had no connections"
        elif "drop" in cut.how:
            self._set_firewall("-A", label)
        else:
            self._set_cable(label, "down")

    def end(self, cut, label):
        if "drop" in cut.how:
            self._set_firewall("-D", label)
        elif "cut" in cut.how:
            self._set_cable(label, "up")

    def _set_cable(self, label, state):
        port = f"port{self._numbers[label]}"
        switch = self._hosts.switch
        command = ["ip", "-n", switch, "link", "set", port, state]
        subprocess.run(command, check=True, timeout=30, capture_output=True)

    def _set_firewall(self, action, label):
        for chain in ("INPUT", "OUTPUT"):
            _run_in(self.place(label)[0], _iptables(), "-w", action, chain, "-j", "DROP")


def _run_in(namespace, *command):
    command = [*within(namespace), *command]
    return subprocess.run(command, check=True, timeout=30, capture_output=True, text=True).stdout


@functools.cache
def _iptables():
    """Its name, or None: of those that are installed the one that this kernel can do."""
    for name in ("iptables", "iptables-legacy"):
        if shutil.which(name):
            with _probe() as namespace, contextlib.suppress(subprocess.CalledProcessError):
                _run_in(namespace, name, "-A", "INPUT", "-j", "DROP")
                return name
    return None


@contextlib.contextmanager
def _probe():
    subprocess.run(["ip", "netns", "add", _PROBE], check=True, capture_output=True)
    try:
        yield _PROBE
    finally:
        subprocess.run(["ip", "netns", "delete", _PROBE], check=True)


@functools.cache
def _can_destroy():
    """Whether `ss -K` works: not every kernel has it (CONFIG_INET_DIAG_DESTROY)."""
    program = (
        "import socket, subprocess\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "peer = socket.create_connection(server.getsockname())\n"
        "subprocess.run(['ss', '-K', '-t', 'state', 'established'], capture_output=True)\n"
        "peer.settimeout(1)\n"
        "try:\n"
        "    peer.recv(1)\n"
        "except ConnectionError:\n"
        "    print('destroyed')\n"
        "except TimeoutError:\n"
        "    pass\n"
    )
    with _probe() as namespace:
        _run_in(namespace, "ip", "link", "set", "lo", "up")
        return "destroyed" in _run_in(namespace, sys.executable, "-c", program)


def why_not(cut):
    """Why a case cannot be run here, where hosts can be emulated; or ""."""
    if "drop" in cut.how and _iptables() is None:
        return "no iptables, or none that this kernel can do: apt-get install iptables"
    if cut.how == "destroyed" and not _can_destroy():
        return "`ss -K` does nothing: this kernel has no CONFIG_INET_DIAG_DESTROY"
    return ""


def cases(seed=1):
    """All cases."""
    return [
        Cut(role, how, workers, seed)
        for how in WAYS
        for role in ("worker", "server", "scheduler")
        for workers in (2, 3)
    ]


def run(cut):
    """Runs a case; returns its `suite.Result`."""
    chance = random.Random(f"{cut} {cut.seed}")
    timeout = _PATIENT_TIMEOUT if cut.is_survived else suite.HEARTBEAT_TIMEOUT
    env = {**suite.ENVIRONMENT, "BYTEPS_HEARTBEAT_TIMEOUT": str(timeout)}
    function, arguments = programs.endure, ("mid-frame", 20)
    if cut.is_survived:
        seconds = BRIEF_SECONDS + _SECONDS_AFTER_A_BRIEF_CUT + 1
        function, arguments = programs.go_on, ("mid-frame", seconds)
    elif cut.role == "server":
        function, arguments = programs.go_on, ("mid-frame", suite.DETECTION + timeout + 1)
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(_Network(cut.workers))
        cluster = stack.enter_context(
            Cluster(function, cut.workers, _SERVERS, env, arguments, network.place)
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
        network.begin(cut, victim.label)
        limit = suite.DETECTION + timeout
        time.sleep(BRIEF_SECONDS if cut.is_survived else limit + 0.2)
        network.end(cut, victim.label)
        if cut.role != "server" or cut.is_survived:
            suite.expect_end(cluster, 40, result)
        else:
            cluster.wait_for(cluster.workers, 40)
        for worker in cluster.workers:
            _check(cut, worker, victim, begin, limit, result)
        if result.faults:
            result.text += "\n" + describe(cluster.wait(0))
    return result


def _check(cut, worker, victim, begin, limit, result):
    report = worker.outcome().result
    if not report:
        return result.faults.append(f"{worker.label} has no result")
    if cut.role == "server" and not cut.is_survived:
        return suite.check_going_on(worker, begin, suite.DETECTION, result, is_silent=True)
    result.rounds += report["rounds"]
    if not cut.is_survived:
        result.text = "error on all workers, then init again in place"
        suite.check_errors(worker.label, report, victim, begin, limit, result)
        if not report.get("back"):
            result.faults.append(f"{worker.label} did not come back")
        return None
    result.text = "training goes on"
    if report["last"] < begin + BRIEF_SECONDS:
        result.faults.append(f"{worker.label}: nothing was exchanged after the cut")
    return None
