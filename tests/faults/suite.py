"""Faults in real jobs: every role, killed or stopped, in every phase of a job's life.

    python -m tests.faults            # all cases; prints the table
    python -m tests.faults --only "worker kill mid-round"

A case draws the moment of the fault, and which of several processes it hits, from its seed; the
seed is printed, and `--seed` replays it. Nobody is lucky twice: the machine's timing is not in it.
"""

import dataclasses
import pathlib
import random
import re
import signal
import tempfile
import time

from tests.cluster import Cluster, describe, wait_until, worker_command
from tests.faults import programs

HEARTBEAT_TIMEOUT = 1.0
# From a fault that can be known at once (kill), or from the end of the heartbeat timeout.
DETECTION = 2.0
ENVIRONMENT = {
    "BYTEPS_HEARTBEAT_INTERVAL": "0.2",
    "BYTEPS_HEARTBEAT_TIMEOUT": str(HEARTBEAT_TIMEOUT),
    "BYTEPS_CONNECT_TIMEOUT": "10",
    "BYTEPS_RENDEZVOUS_TIMEOUT": "30",
    "BYTEPS_OPERATION_TIMEOUT": "30",
    "BYTEPS_SHUTDOWN_TIMEOUT": "10",
    "BYTEPS_RESTART_TIMEOUT": "20",
    "BYTEPS_PARTITION_BYTES": str(64 << 20),  # frames that take long
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_NOT_RUNNING = ("rendezvous", "shutdown")  # phases
_RESTART_SECONDS = 4
_WORK_SECONDS = 20
_LEAVING_SECONDS = 0.5


@dataclasses.dataclass(frozen=True)
class Case:
    """A fault, and the job that it hits.

    Attributes:
        role: "worker", "server" or "scheduler": what it hits.
        how: "kill", "stop", or "restart": a server is killed and started again.
        phase: one of `programs.PHASES`.
        workers: their number; there are two servers.
        seed: decides the moment, and the process.
    """

    role: str
    how: str
    phase: str
    workers: int = 2
    seed: int = 1

    def __str__(self):
        return f"{self.role} {self.how} {self.phase} {self.workers} workers"


@dataclasses.dataclass
class Result:
    """What came of a case.

    Attributes:
        victim: the process that was hit.
        rounds: sums that were exchanged before, by all workers, and compared with the right ones.
        known: seconds from the fault until the last survivor's exchange had ended, or None. If
            training went on: the longest that a round took.
        text: what the job did then.
        faults: what is wrong with that; nothing should be.
    """

    case: Case
    victim: str
    rounds: int = 0
    known: float | None = None
    text: str = ""
    faults: list[str] = dataclasses.field(default_factory=list)


def cases(seed=1):
    """All cases."""
    faults = [
        (role, how, phase)
        for phase in programs.PHASES
        for role in ("worker", "server", "scheduler")
        for how in _SIGNALS
    ]
    running = [phase for phase in programs.PHASES if phase not in _NOT_RUNNING]
    faults += [("server", "restart", phase) for phase in running]
    return [Case(*fault, workers, seed) for fault in faults for workers in (2, 3)]


def run(case):
    """Runs a case; returns its `Result`."""
    chance = random.Random(f"{case} {case.seed}")
    with tempfile.TemporaryDirectory() as folder:
        go_file = pathlib.Path(folder) / "go"
        env = {**ENVIRONMENT, "TESTS_GO_FILE": str(go_file)}
        if case.phase == "mid-frame":
            env["BYTEPS_ENABLE_IPC"] = "0"  # through sockets
        limit = DETECTION + (HEARTBEAT_TIMEOUT if case.how == "stop" else 0)
        goes_on = case.role == "server" and case.phase not in _NOT_RUNNING
        function, args = programs.endure, (case.phase, _WORK_SECONDS)
        if goes_on:
            seconds = _RESTART_SECONDS if case.how == "restart" else limit + 1
            function, args = programs.go_on, (case.phase, seconds)
        if case.phase == "shutdown":
            function, args = programs.leave, (_LEAVING_SECONDS,)
            env["BYTEPS_RESTART_TIMEOUT"] = "1"  # nobody comes back
        with Cluster(function, case.workers, 2, env, args) as cluster:
            for worker in cluster.workers:
                worker.wait_for_output("working")
            victim = _victim(case, cluster, chance)
            result = Result(case, victim.label)
            check = {"rendezvous": _rendezvous, "shutdown": _shutdown}.get(case.phase, _running)
            if goes_on:
                check = _going_on
            try:
                check(case, cluster, victim, chance, result, go_file)
            finally:
                if result.faults or not result.text:
                    result.text += "\n" + describe(cluster.wait(0))
            return result


def _victim(case, cluster, chance):
    if case.role == "scheduler":
        return cluster.scheduler
    if case.role == "server":
        return chance.choice(cluster.servers)
    if case.phase == "mid-round":
        return cluster.workers[-1]  # the one that the others wait for
    if case.phase == "rendezvous":
        return chance.choice(cluster.workers[:-1])  # those that have come
    return chance.choice(cluster.workers)


def _running(case, cluster, victim, chance, result, _):
    time.sleep(0.1 + chance.uniform(0, 0.4))
    begin = time.monotonic()
    victim.kill(_SIGNALS[case.how])
    limit = DETECTION + (HEARTBEAT_TIMEOUT if case.how == "stop" else 0)
    time.sleep(limit + 0.2)
    _bring_back(case, cluster, victim)
    expect_end(cluster, 30, result)
    reports = {w.label: w.outcome().result for w in cluster.workers if w.outcome().result}
    for label, report in reports.items():
        if label == victim.label and (case.how == "kill" or case.phase == "mid-round"):
            continue  # the replacement, or one that could not notice anything in between
        result.rounds += report["rounds"]
        check_errors(label, report, victim, begin, limit, result)
        if not report.get("back"):
            result.faults.append(f"{label} did not come back")
    result.text = "error on all workers, then init again in place"


def _going_on(case, cluster, victim, chance, result, _):
    """One of two servers is lost, and training goes on with the other."""
    time.sleep(0.1 + chance.uniform(0, 0.4))
    begin = time.monotonic()
    victim.kill(_SIGNALS.get(case.how, signal.SIGKILL))
    if case.how == "restart":
        cluster.replace(victim)
    survivors = [p for p in cluster.processes() if p is not victim]
    cluster.wait_for(survivors, 30)
    if case.how == "restart" and "gets a share of the parts" not in cluster.scheduler.output():
        result.faults.append("it did not come back into the job")
    for process in survivors:
        outcome = process.outcome()
        if outcome.code != 0:
            result.faults.append(f"{outcome.label}: exit code {outcome.code}")
    for worker in cluster.workers:
        check_going_on(worker, begin, DETECTION, result, case.how == "stop")


def check_going_on(worker, begin, limit, result, is_silent):
    """`limit`: seconds that a round may take; the heartbeat timeout more if nothing says that a
    process is lost."""
    report = worker.outcome().result
    if not report:
        return result.faults.append(f"{worker.label} has no result")
    result.rounds += report["rounds"]
    result.known = max(result.known or 0, report["longest"])
    result.text = "training goes on"
    if report["longest"] > limit + (HEARTBEAT_TIMEOUT if is_silent else 0):
        result.faults.append(f"{worker.label}: a round took {report['longest']:.1f} s")
    # The round in which the fault falls may be the last one.
    if report["last"] < begin:
        result.faults.append(f"{worker.label}: nothing was exchanged after the fault")
    return None


def check_errors(label, report, victim, begin, limit, result):
    if not report["error"] or not report["later"]:
        result.faults.append(f"{label}: no error: {report}")
        return
    for code, message, when in (report["error"], report["later"]):
        if code != "UNAVAILABLE":
            result.faults.append(f"{label}: {code}: {message}")
        # For one that was stopped itself all others were silent.
        lost = victim.label if label != victim.label else "lost|silent"
        for wanted in (lost, r"\d+\.\d+\.\d+\.\d+", r"round \d+"):
            if not re.search(wanted, message):
                result.faults.append(f"{label}: {wanted!r} is not in {message!r}")
        if label != victim.label:
            result.known = max(result.known or 0, when - begin)
            if when - begin > limit:
                result.faults.append(f"{label}: knew after {when - begin:.1f} s: {message}")


def _bring_back(case, cluster, victim):
    """A stopped process goes on; in the place of a dead one comes another."""
    if case.how == "stop":
        return victim.kill(signal.SIGCONT)
    is_later = case.role == "worker" and case.phase != "rendezvous"
    cluster.replace(victim, worker_command(programs.come_back) if is_later else None)


def _rendezvous(case, cluster, victim, chance, result, go_file):
    time.sleep(0.3 + chance.uniform(0, 0.5))
    begin = time.monotonic()
    victim.kill(_SIGNALS[case.how])
    if case.how == "stop":
        time.sleep(HEARTBEAT_TIMEOUT + 0.7)
    _bring_back(case, cluster, victim)
    go_file.touch()
    expect_end(cluster, 30, result)
    for worker in cluster.workers:
        report = worker.outcome().result
        if not report or not report["back"]:
            result.faults.append(f"{worker.label} did not come into the job: {report}")
        else:
            result.rounds += 3
    result.text = f"the job began all the same, {time.monotonic() - begin:.1f} s later"


def _shutdown(case, cluster, victim, chance, result, _):
    """Some have left, the last one leaves soon: nobody may hang, and who has left has left."""
    time.sleep(chance.uniform(0, _LEAVING_SECONDS))
    begin = time.monotonic()
    victim.kill(_SIGNALS[case.how])
    others = [p for p in cluster.processes() if p is not victim]
    limit = DETECTION + (HEARTBEAT_TIMEOUT if case.how == "stop" else 0)
    _wait_for_workers(cluster, victim, limit + _LEAVING_SECONDS + 8, result)
    for worker in cluster.workers:
        if worker is victim:
            continue
        report = worker.outcome().result
        if worker.outcome().code != 0 or not report:
            result.faults.append(f"{worker.label} did not leave")
        else:
            result.rounds += report["rounds"]
            result.known = max(result.known or 0, report["end"] - begin)
    if case.how == "stop":
        victim.kill(signal.SIGCONT)
    deadline = time.monotonic() + 40
    for process in others:  # servers and scheduler give up after the restart timeout
        wait_until(lambda p=process: p.popen.poll() is not None, deadline - time.monotonic())
    result.text = "all others left"


def _wait_for_workers(cluster, victim, seconds, result):
    survivors = [w for w in cluster.workers if w is not victim]
    try:
        wait_until(lambda: all(w.popen.poll() is not None for w in survivors), seconds)
    except AssertionError:
        result.faults.append(f"not all had left after {seconds:.1f} s")


def expect_end(cluster, seconds, result):
    for outcome in cluster.wait(seconds):
        if outcome.code != 0:
            result.faults.append(f"{outcome.label}: exit code {outcome.code}")


def table(results):
    """The results as a Markdown table."""
    lines = [
        "| phase | what | fault | workers | known after | then | wrong results |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        case = result.case
        known = "" if result.known is None else f"{result.known:.2f} s"
        faults = "; ".join(result.faults)
        text = faults or result.text
        lines.append(
            f"| {case.phase} | {result.victim} | {case.how} | {case.workers} | {known} | {text} "
            f"| 0 of {result.rounds} |"
        )
    return "\n".join(lines)
