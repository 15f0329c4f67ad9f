"""What happens when processes end, hang, fork or are not there."""

import json
import os
import signal
import time

import psutil
import pytest

from tests.access import programs as access
from tests.cluster import (
    Cluster,
    clean_environment,
    describe,
    free_port,
    outcome_of,
    run_processes,
    run_workers,
    wait_until,
)
from tests.engine import programs


@pytest.mark.parametrize("servers", [0, 1])
@pytest.mark.parametrize("how", ["exit", "kill", "exception"])
def test_a_worker_that_ends_without_goodbye_is_an_error_for_the_others(how, servers):
    outcomes = run_processes(programs.end_early, workers=3, servers=servers, args=[how])
    codes = {"exit": 3, "kill": -signal.SIGKILL, "exception": 1}
    assert outcome_of(outcomes, "worker 1").code == codes[how]
    for label in ("worker 0", "worker 2"):
        outcome = outcome_of(outcomes, label)
        assert outcome.result is not None, describe(outcomes)
        code, message = outcome.result
        assert code == "UNAVAILABLE" and "silent" not in message  # its connections were closed
        if servers:  # with a colocated one the server may be missed first
            assert "worker 1" in message
    for outcome in outcomes:
        if outcome.label.startswith("s"):
            assert outcome.code == 1 and "worker 1" in outcome.output, describe(outcomes)


def test_a_goodbye_while_others_push_is_an_error_that_names_both():
    outcomes = run_processes(programs.end_early, workers=2, servers=1, args=["goodbye"])
    assert outcome_of(outcomes, "worker 1").result == "left"
    code, message = outcome_of(outcomes, "worker 0").result
    assert code == "FAILED_PRECONDITION"
    assert "worker 1" in message and "worker 0" in message and '"before"' in message


def test_a_lost_server_is_an_error_on_every_worker():
    with Cluster(programs.waits_for_end, workers=2, servers=1) as cluster:
        for worker in cluster.workers:
            worker.wait_for_output("ready")
        cluster.servers[0].kill()
        for outcome in cluster.wait(30)[2:]:
            code, message = outcome.result
            assert code == "UNAVAILABLE" and "server 0" in message and "silent" not in message


def test_a_lost_scheduler_is_an_error_on_every_worker_and_ends_the_servers():
    with Cluster(programs.waits_for_end, workers=2, servers=1) as cluster:
        for worker in cluster.workers:
            worker.wait_for_output("ready")
        cluster.scheduler.kill()
        outcomes = cluster.wait(30)
        for outcome in outcomes[2:]:
            assert outcome.result is not None, describe(outcomes)
            code, message = outcome.result
            assert code == "UNAVAILABLE" and "silent" not in message, message
        assert outcome_of(outcomes, "server 0").code == 1


def test_a_stopped_worker_is_lost_when_it_is_silent_for_too_long():
    env = {"BYTEPS_HEARTBEAT_INTERVAL": "0.5", "BYTEPS_HEARTBEAT_TIMEOUT": "2"}
    with Cluster(programs.waits_for_end, workers=2, servers=1, env=env) as cluster:
        for worker in cluster.workers:
            worker.wait_for_output("ready")
        cluster.workers[1].kill(signal.SIGSTOP)
        wait_until(lambda: cluster.workers[0].outcome().code is not None)
        code, message = cluster.workers[0].outcome().result
        assert code == "UNAVAILABLE" and "worker 1" in message and "silent" in message


def test_a_held_interpreter_lock_is_no_death():
    """Heartbeats come from engine threads (protocol rule 20)."""
    env = {"BYTEPS_HEARTBEAT_INTERVAL": "0.5", "BYTEPS_HEARTBEAT_TIMEOUT": "2"}
    assert run_workers(programs.late_reader, env=env) == [[2.0]] * 2


def test_a_forked_child_is_refused_and_disturbs_nobody():
    """A fork inherits nothing (protocol rule 22)."""
    for answer, status, after in run_workers(programs.forked_child, workers=2, servers=0):
        assert "FAILED_PRECONDITION" in answer and "forked" in answer
        assert "False" in answer  # no longer initialized
        assert (status, after) == (0, [2.0])


def test_a_spawned_child_is_told_what_to_do():
    for answer, after in run_workers(programs.spawned_child, workers=2, servers=0):
        assert "is a worker of the job already" in answer and "__main__" in answer
        assert after == [2.0]


def test_a_killed_worker_with_a_living_forked_child_is_noticed(tmp_path):
    """The child does not hold its parent's sockets open (protocol rule 22)."""
    pid_file = tmp_path / "pid"
    args = [str(pid_file)]
    with Cluster(programs.killed_with_a_living_child, workers=2, servers=1, args=args) as cluster:
        outcomes = cluster.wait(30)
        assert os.path.exists(f"/proc/{pid_file.read_text()}"), "the child should live"
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
    code, message = outcome_of(outcomes, "worker 0").result
    assert code == "UNAVAILABLE" and "worker 1" in message and "silent" not in message


def test_a_server_without_memory_is_named_and_lives(tmp_path):
    args = [str(tmp_path)]
    with Cluster(programs.more_than_a_server_has, workers=2, servers=1, args=args) as cluster:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        server = psutil.Process(cluster.servers[0].popen.pid)
        most = server.memory_info().vms + (64 << 20)
        server.rlimit(psutil.RLIMIT_AS, (most, most))
        (tmp_path / "limited").touch()
        outcomes = cluster.wait(60)
    for rank in range(2):
        code, message, after = outcome_of(outcomes, f"worker {rank}").result
        assert code == "RESOURCE_EXHAUSTED" and after == [2.0]
        assert "server 0 at 127.0.0.1:" in message and "has no memory for" in message


@pytest.mark.parametrize("role", ["worker", "server"])
def test_unreachable_scheduler(role):
    port = free_port()
    variables = {
        "DMLC_ROLE": role,
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(port),
        "DMLC_NUM_WORKER": "2",
        "DMLC_NUM_SERVER": "1",
        "DMLC_WORKER_ID": "0",
        "BYTEPS_RENDEZVOUS_TIMEOUT": "1",
    }
    done = run_python(*_start(role), **variables)
    assert done.returncode == 1
    expected = f"cannot reach the scheduler at 127.0.0.1:{port}: no answer in 1 s"
    assert expected in done.stderr and "Connection refused" in done.stderr


def _start(role):
    if role == "server":
        return ("-m", "tf_byteps.server")
    return ("-c", "import tf_byteps; tf_byteps.init()")


@pytest.mark.parametrize("role", ["server", "scheduler"])
def test_init_in_a_process_of_another_role(role):
    place = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "9000", "DMLC_ROLE": role}
    done = run_python("-c", "import tf_byteps; tf_byteps.init()", **place)
    assert done.returncode == 1
    assert f"DMLC_ROLE is '{role}', but only a worker trains" in done.stderr
    assert f"python -m tf_byteps.{role}" in done.stderr


def test_ctrl_c_ends_a_worker_that_waits_for_others():
    env = {"BYTEPS_LOG_LEVEL": "INFO"}
    with Cluster(programs.just_init, workers=2, servers=0, env=env) as cluster:
        cluster.workers[1].kill()
        cluster.scheduler.wait_for_output("worker 0")
        cluster.workers[0].kill(signal.SIGINT)
        wait_until(lambda: cluster.workers[0].outcome().code is not None)
        assert "KeyboardInterrupt" in cluster.workers[0].outcome().output


def test_evaluator_is_the_only_worker_of_its_job():
    cluster = {"worker": ["a.invalid:1", "b.invalid:2"], "evaluator": ["c.invalid:3"]}
    text = json.dumps({"cluster": cluster, "task": {"type": "evaluator", "index": 0}})
    program = "import tf_byteps as b; b.init(); print(b.rank(), b.size())"
    done = run_python("-c", program, TF_CONFIG=text)
    assert (done.returncode, done.stdout) == (0, "0 1\n"), done.stderr


def run_python(*arguments, **variables):
    import subprocess
    import sys

    return subprocess.run(
        [sys.executable, *arguments],
        env=clean_environment(**variables),
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_a_server_that_is_stopped_for_a_while_is_not_lost(tmp_path):
    """It is silent on every path for longer than two heartbeats; its timeout is not over."""
    stop = tmp_path / "stop"
    env = {"BYTEPS_HEARTBEAT_INTERVAL": "1", "BYTEPS_HEARTBEAT_TIMEOUT": "60"}
    with Cluster(access.steps, 2, 2, env=env, args=[str(stop), 0.05]) as cluster:
        for worker in cluster.workers:
            worker.wait_for_output("ready")
        cluster.servers[0].kill(signal.SIGSTOP)
        time.sleep(12)
        cluster.servers[0].kill(signal.SIGCONT)
        stop.touch()
        outcomes = cluster.wait(60)
    assert all(outcome.code == 0 for outcome in outcomes), describe(outcomes)
    assert "training goes on" not in describe(outcomes), describe(outcomes)


def test_a_job_that_is_stopped_as_a_whole_goes_on(tmp_path):
    """As by Ctrl-Z and fg: nobody takes the others' silence for a loss."""
    stop = tmp_path / "stop"
    env = {"BYTEPS_HEARTBEAT_INTERVAL": "0.5", "BYTEPS_HEARTBEAT_TIMEOUT": "2"}
    with Cluster(access.steps, 2, 2, env=env, args=[str(stop), 0.05]) as cluster:
        for worker in cluster.workers:
            worker.wait_for_output("ready")
        for process in cluster.processes():
            process.kill(signal.SIGSTOP)
        time.sleep(8)
        for process in cluster.processes():
            process.kill(signal.SIGCONT)
        time.sleep(4)
        stop.touch()
        outcomes = cluster.wait(60)
    assert all(outcome.code == 0 for outcome in outcomes), describe(outcomes)
    assert "silent" not in describe(outcomes), describe(outcomes)
