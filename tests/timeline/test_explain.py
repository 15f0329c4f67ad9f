"""`--explain` on jobs with a planted cause, and `bpslaunch --timeline`."""

import subprocess
import sys
import time

import numpy as np

import tf_byteps
from tests.cluster import ROOT, clean_environment, run_workers
from tf_byteps import _engine, timeline
from tf_byteps.timeline.explain import explain

SECONDS = 40


def with_a_slow_worker():
    tf_byteps.init()
    for _ in range(6):
        time.sleep(0.1 * tf_byteps.rank())
        _engine.exchange(np.ones(500, np.float32), name="gradient/conv1").wait(SECONDS)
    tf_byteps.shutdown()


def test_a_slow_worker_is_named(tmp_path):
    run_workers(with_a_slow_worker, env={"BYTEPS_TIMELINE": f"{tmp_path}/"})
    sentence, cause, *_ = explain(timeline.read(tmp_path))
    assert sentence.startswith("worker 0: step ")
    assert "(tensor gradient/conv1 waits for worker 1)" in sentence
    assert "backup workers" in cause


def test_bpslaunch_records_and_merges(tmp_path):
    program = "from tests.timeline.test_explain import with_a_slow_worker as w; w()"
    file = tmp_path / "job.json"
    command = [sys.executable, "-m", "tf_byteps.launch", "-np", "2", "--servers", "1"]
    command += ["--timeline", str(file), "--", sys.executable, "-c", program]
    how = {"env": clean_environment(), "cwd": ROOT, "capture_output": True, "text": True}
    done = subprocess.run(command, timeout=60, **how)
    assert done.returncode == 0, done.stderr
    assert file.exists() and f"all in one: {file}" in done.stderr
    assert "ms a step: worker 1: its compute takes " in done.stderr
    names = sorted(path.name for path in (tmp_path / "job.json.d").iterdir())
    servers = ["timeline-scheduler.json", "timeline-server-0.json"]
    assert names == [*servers, "worker-0.json", "worker-1.json"]
    again = subprocess.run(command, timeout=60, **how)
    assert again.returncode == 2 and "name another file" in again.stderr
