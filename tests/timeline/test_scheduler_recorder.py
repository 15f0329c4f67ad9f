"""The scheduler's track of a job's timeline: what has happened to the job, and when."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

import tf_byteps
from tests.cluster import ROOT, Cluster, clean_environment, describe, free_port, run_processes
from tests.engine import programs
from tf_byteps.timeline.report import main
from tf_byteps.timeline.scheduler_recorder import PID


def events_in(folder):
    """The scheduler's in the merged file: pairs of name and arguments; and all times in order."""
    assert main([str(folder)]) == 0
    trace = json.loads((folder / "job.json").read_text())
    found = [event for event in trace["traceEvents"] if event["pid"] == PID]
    shown = [event for event in found if event["ph"] == "i"]
    named = {e["args"]["name"] for e in found if "name" in e.get("args", {})}
    assert named == {"scheduler", "events"}
    assert [event["ts"] for event in shown] == sorted(event["ts"] for event in shown)
    others = [e["ts"] for e in trace["traceEvents"] if e["ph"] == "X"]
    return [(event["name"], event["args"], event["ts"]) for event in shown], others


def recorded(tmp_path, function, workers=2, servers=1, args=(), **variables):
    env = {"BYTEPS_TIMELINE": f"{tmp_path}/", **variables}
    outcomes = run_processes(function, workers, servers, env, args=args)
    assert all(outcome.code == 0 for outcome in outcomes), describe(outcomes)
    return events_in(tmp_path)


def test_who_has_come_and_who_has_stalled(tmp_path):
    """The log's level does not matter: by default it does not tell who has come."""
    stall = {"BYTEPS_STALL_WARNING_SECONDS": "1"}
    events, others = recorded(tmp_path, programs.one_does_not_send, 3, args=[3], **stall)
    here = [(a["peer_role"], a["peer_rank"]) for name, a, _ in events if name == "process_here"]
    assert sorted(here) == [("server", 0), ("worker", 0), ("worker", 1), ("worker", 2)]
    # A worker may begin before the last one is there.
    assert min(ts for name, _, ts in events if name == "process_here") <= min(others)
    # On a busy machine others may have stalled before, and this one be told twice.
    messages = {args["message"]: ts for name, args, ts in events if name == "stalled"}
    late = [message for message in messages if 'tensor "late"' in message]
    assert any("not by rank 1" in message for message in late), messages
    assert min(others) < messages[late[0]] < max(others)


@pytest.mark.parametrize("level", ["WARNING", "ERROR"])
def test_a_lost_worker(tmp_path, level):
    env = {"BYTEPS_TIMELINE": f"{tmp_path}/", "BYTEPS_LOG_LEVEL": level}
    with Cluster(programs.waits_for_end, workers=2, servers=1, env=env) as cluster:
        for worker in cluster.workers:
            worker.wait_for_output("ready")
        cluster.workers[1].kill(signal.SIGKILL)
        cluster.wait_for(cluster.processes(), 60)
    events, others = events_in(tmp_path)
    lost = [(args, ts) for name, args, ts in events if name == "process_lost"]
    assert (lost[0][0]["peer_role"], lost[0][0]["peer_rank"]) == ("worker", 1)
    assert "ended without a goodbye" in lost[0][0]["message"] and lost[0][1] > min(others)


def test_new_sizes(tmp_path):
    """Links of 20 MB/s, between hosts that are said to be different ones."""
    link = {"BYTEPS_LINK_BYTES_PER_SECOND": "20000000"}
    folder = {"BYTEPS_TIMELINE": f"{tmp_path}/"}
    outcomes = run_processes(
        programs.tuned, 3, 1, lambda label: {"BYTEPS_HOST_ID": label, **link, **folder}
    )
    assert all(outcome.code == 0 for outcome in outcomes), describe(outcomes)
    retuned = [args for name, args, _ in events_in(tmp_path)[0] if name == "retuned"]
    assert 400_000 <= retuned[0]["credit_bytes"] < 800_000


def train_for_tf_config():
    tf_byteps.init()
    for _ in range(3):
        programs.start(np.ones(9, np.float32), name="x").wait(programs.SECONDS)
    tf_byteps.shutdown()


def test_a_scheduler_in_a_workers_process_records_too(tmp_path):
    """With TF_CONFIG worker 0 hosts it."""
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    processes = []
    for index in range(2):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        env = clean_environment(BYTEPS_TIMELINE=f"{tmp_path}/", TF_CONFIG=json.dumps(task))
        program = "from tests.timeline.test_scheduler_recorder import train_for_tf_config as t; t()"
        command = [sys.executable, "-c", program]
        processes.append(subprocess.Popen(command, env=env, cwd=ROOT))
    try:
        assert [process.wait(60) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    events, _ = events_in(tmp_path)
    here = [(a["peer_role"], a["peer_rank"]) for name, a, _ in events if name == "process_here"]
    assert {("worker", 0), ("worker", 1)} <= set(here)
