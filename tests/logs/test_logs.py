"""BYTEPS_LOG_FORMAT=json: what programs read."""

import json
import logging
import re
import signal
import sys
import time

from tests.cluster import ROOT, Cluster, describe, run_processes
from tests.engine import programs

_MEMBERS = {"time", "level", "role", "host", "event", "message"}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_JSON = {"BYTEPS_LOG_FORMAT": "json", "BYTEPS_LOG_LEVEL": "INFO"}
_OWN_OUTPUT = {"in between", "ready"}
_DOCS = ROOT / "docs" / "logs.md"


def says_something():
    import tf_byteps

    tf_byteps.init()
    logging.getLogger("tf_byteps").warning('"all"\nüber %d', tf_byteps.rank())
    logging.getLogger("tf_byteps.own").info("below")
    print("in between", file=sys.stderr)


def _lines(outcome):
    """What a process has printed, which must all be objects."""
    lines = outcome.output.splitlines()
    return [json.loads(line) for line in lines if line not in _OWN_OUTPUT]


def _events(outcome):
    return {line["event"]: line for line in _lines(outcome) if line["event"]}


def test_all_lines_of_a_job_are_objects_with_who_and_what():
    outcomes = run_processes(says_something, workers=2, servers=1, env=_JSON)
    assert all(outcome.code == 0 for outcome in outcomes), describe(outcomes)
    scheduler, server, *workers = map(_lines, outcomes)
    for line in [*scheduler, *server, *workers[0], *workers[1]]:
        assert set(line) >= _MEMBERS and _TIME.fullmatch(line["time"]), line
    here = [line for line in scheduler if line["event"] == "process_here"]
    assert {(line["peer_role"], line["peer_rank"]) for line in here} == {
        ("server", 0),
        ("worker", 0),
        ("worker", 1),
    }
    assert {line["role"] for line in scheduler} == {"scheduler"}
    for rank, lines in enumerate(workers):
        own = [line for line in lines if line["message"] == f'"all"\nüber {rank}']
        assert [(line["role"], line["rank"], line["level"]) for line in own] == [
            ("worker", rank, "WARNING")
        ]
        assert [line["event"] for line in lines if line["message"] == "below"] == [""]


def test_a_lost_worker_is_an_event_with_its_rank():
    with Cluster(programs.waits_for_end, workers=2, servers=1, env=_JSON) as cluster:
        for worker in cluster.workers:
            worker.wait_for_output("ready")
        cluster.workers[1].kill(signal.SIGKILL)
        cluster.wait_for([cluster.scheduler], 60)
        lost = _events(cluster.scheduler.outcome())["process_lost"]
        assert (lost["peer_role"], lost["peer_rank"], lost["level"]) == ("worker", 1, "ERROR")
        assert "worker 1" in lost["message"] and lost["role"] == "scheduler"


def test_a_stall_is_an_event_of_the_worker_that_waits():
    env = {**_JSON, "BYTEPS_STALL_WARNING_SECONDS": "1"}
    outcomes = run_processes(programs.one_does_not_send, 3, 1, env, args=[4])
    stalled = _events(outcomes[2])["stalled"]
    assert stalled["rank"] == 0 and 'waits for tensor "late"' in stalled["message"]


def one_is_slow():
    import numpy as np

    import tf_byteps
    from tf_byteps import _engine

    tf_byteps.init()
    for _ in range(300):
        time.sleep(0.04 * tf_byteps.rank())
        _engine.exchange(np.ones(9, np.float32), name="gradient/w").wait(60)
    tf_byteps.shutdown()


def test_a_straggler_is_an_event_of_worker_0():
    env = {**_JSON, "BYTEPS_HEARTBEAT_INTERVAL": "0.2"}
    outcomes = run_processes(one_is_slow, 2, 1, env)
    assert all(outcome.code == 0 for outcome in outcomes), describe(outcomes)
    reported = [line for line in _lines(outcomes[2]) if line["event"] == "straggler"]
    assert len(reported) == 1 and "straggler" not in _events(outcomes[3])
    assert (reported[0]["peer_role"], reported[0]["peer_rank"], reported[0]["level"]) == (
        "worker",
        1,
        "WARNING",
    )
    assert 20 <= reported[0]["lag_ms"] <= reported[0]["step_ms"] + 20


def test_the_documents_list_the_events_that_there_are():
    calls = re.compile(r"Log(?:Info|Warning|Error)\((.*?)\);", re.DOTALL)
    in_cc = re.compile(r'\{\s*"(\w+)",\s+(?:FieldsOf|\{)')
    # A state machine leaves it to others to write.
    notices = re.compile(r"notices\.push_back\((.*?)\);", re.DOTALL)
    in_notice = re.compile(r'(?:^\s*|, )(?:[^"\n]*\? "(\w+)" : )?"(\w+)",', re.MULTILINE)
    in_python = re.compile(r'logs\.event\(\s*"(\w+)"')
    found = {"lines_left_out"}  # by the log itself
    for path in (ROOT / "cc").rglob("*.cc"):
        if not path.name.endswith("_test.cc"):
            for call in calls.findall(path.read_text()):
                found.update(in_cc.findall(call))
            for notice in notices.findall(path.read_text()):
                found.update(name for names in in_notice.findall(notice) for name in names if name)
    for path in (ROOT / "tf_byteps").rglob("*.py"):
        found.update(in_python.findall(path.read_text()))
    table = _DOCS.read_text().partition("## Events")[2]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.M)) == found
