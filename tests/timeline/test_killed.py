"""A process that is killed in the middle of a job leaves what it has recorded, and it merges."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

import tf_byteps
from tests.cluster import ROOT, clean_environment, wait_until
from tf_byteps import _engine
from tf_byteps.timeline.files import events_of
from tf_byteps.timeline.server_recorder import FIRST_PID

SECONDS = 40
PROGRAM = "from tests.timeline.test_killed import exchange_until_it_fails as e; e()"


def exchange_until_it_fails():
    tf_byteps.init()
    while True:
        time.sleep(0.01)  # a merge takes long of what two seconds without would leave
        handles = [
            _engine.exchange(np.ones(5000, np.float32), name=f"gradient/{n}") for n in range(20)
        ]
        for handle in handles:
            handle.wait(SECONDS)


def process_of(launcher, **variables):
    """The child of bpslaunch with these variables; the guard of each process has them, too."""
    for process in reversed(psutil.Process(launcher.pid).children(recursive=True)):
        environment = process.environ()
        if all(environment.get(name) == value for name, value in variables.items()):
            return process
    raise AssertionError(f"bpslaunch has started no process with {variables}")


def has_events(path):
    return path.exists() and path.stat().st_size > 100_000


@pytest.mark.parametrize(
    "name, variables",
    [
        ("worker-1.json", {"DMLC_ROLE": "worker", "BYTEPS_GLOBAL_RANK": "1"}),
        ("timeline-server-0.json", {"DMLC_ROLE": "server"}),
    ],
)
def test_one_that_is_killed_leaves_what_it_has_recorded(tmp_path, name, variables):
    file = tmp_path / "job.json"
    names = ("worker-0.json", "worker-1.json", "timeline-server-0.json")
    files = [tmp_path / "job.json.d" / each for each in names]
    command = [sys.executable, "-m", "tf_byteps.launch", "-np", "2", "--servers", "1"]
    command += ["--timeline", str(file), "--", sys.executable, "-c", PROGRAM]
    with open(tmp_path / "errors.txt", "w+") as errors:
        launcher = subprocess.Popen(command, env=clean_environment(), cwd=ROOT, stderr=errors)
        try:
            wait_until(lambda: all(map(has_events, files)))
            process_of(launcher, **variables).send_signal(signal.SIGKILL)
            code = launcher.wait(60)
        finally:
            launcher.kill()
            launcher.wait()
        said = (tmp_path / "errors.txt").read_text()
    assert code not in (0, 2), said
    assert f"note: {name} ends early" in said and f"all in one: {file}" in said
    events = json.loads(file.read_text())["traceEvents"]
    of_process = {event["pid"] for event in events if event["ph"] == "X"}
    assert of_process == {0, 1, FIRST_PID}
    recorded = events_of(str(tmp_path / "job.json.d" / name))
    assert len([event for event in recorded if event["ph"] == "X"]) > 100
