"""Timelines of jobs whose processes are replaced: no file takes another one's place."""

import json
import re
import subprocess
import sys

import numpy as np

import tf_byteps
from tests.cluster import ROOT, clean_environment, run_workers
from tests.elastic.conftest import elastic, launch  # noqa: F401
from tf_byteps import _engine, timeline
from tf_byteps.timeline.files import files_in, session_of
from tf_byteps.timeline.scheduler_recorder import PID
from tf_byteps.timeline.steps import by_workers, steps_of


def test_a_replacement_leaves_the_file_of_whom_it_replaces(elastic, tmp_path):  # noqa: F811
    file = tmp_path / "job.json"
    job = elastic("--min-np", "2", "--max-np", "2", "--servers", "1", "--timeline", str(file))
    job.running.wait_for("of 2 from 0", 2)
    folder = tmp_path / "job.json.d"
    _wait_for_parts(folder / "worker-1.json")
    job.kill(1)
    job.running.wait_for("member 2: rank 1 of 2 from")
    code, output = job.finish()
    assert code == 0, output
    names = {path.name for path in folder.iterdir()}
    workers = {"worker-0.json", "worker-0.2.json", "worker-1.json", "worker-1.2.json"}
    assert names == {
        *workers,
        *("timeline-server-0.json", "timeline-server-0.2.json", "timeline-scheduler.json"),
    }
    first, second = (session_of(folder / name) for name in ("worker-1.json", "worker-1.2.json"))
    assert first.process != second.process and first.epoch != second.epoch
    assert "note: worker-1.json ends early" in output and "all in one" in output
    _check_merged(file, folder)


def _wait_for_parts(path):
    from tests.cluster import wait_until

    wait_until(lambda: path.exists() and path.stat().st_size > 20_000)


def _check_merged(file, folder):
    parts = timeline.read(folder)
    epochs = {part.epoch for part in parts}
    assert len(epochs) == 2
    assert {(part.worker, part.epoch) for part in parts} == {(w, e) for w in (0, 1) for e in epochs}
    trace = json.loads(file.read_text())
    clocks = trace["otherData"]["clocks"]
    assert clocks["worker 1 (process 2)"]["error_ns"] is not None
    assert "worker 0 (process 2)" not in clocks, "it is the same process in both epochs"
    # Rounds are counted anew: of each exchange there is one flow, and sums have one epoch.
    flows = [event for event in trace["traceEvents"] if event["ph"] == "s"]
    answered = [part for part in parts if part.status == "OK" and part.reply_received]
    assert len(flows) > len(answered) * 0.9
    for of_worker in by_workers(parts).values():
        for step in steps_of(of_worker):
            assert len({part.epoch for part in step.parts}) == 1
    events = [e["name"] for e in trace["traceEvents"] if e["pid"] == PID and e["ph"] == "i"]
    lost, changed = events.index("process_lost"), events.index("workers_changed")
    assert events[:lost].count("process_here") == 3 and lost < changed
    assert events[changed:].count("process_here") == 3


def a_few_exchanges():
    tf_byteps.init()
    for _ in range(3):
        _engine.exchange(np.ones(9, np.float32), name="gradient/x").wait(40)
    tf_byteps.shutdown()


def test_a_later_run_replaces_files_and_what_is_left_is_not_merged(tmp_path):
    env = {"BYTEPS_TIMELINE": f"{tmp_path}/"}
    run_workers(a_few_exchanges, workers=3, env=env)
    run_workers(a_few_exchanges, workers=2, env=env)
    names = sorted(path.name for path in tmp_path.iterdir())
    workers = [f"worker-{rank}.json" for rank in range(3)]
    assert names == ["timeline-scheduler.json", "timeline-server-0.json", *workers]
    assert {part.worker for part in timeline.read(tmp_path)} == {0, 1}
    assert tmp_path / "worker-2.json" not in map(type(tmp_path), files_in(str(tmp_path)))
    command = [sys.executable, "-m", "tf_byteps.timeline", str(tmp_path)]
    how = {"env": clean_environment(), "cwd": ROOT, "capture_output": True, "text": True}
    done = subprocess.run(command, **how)
    assert done.returncode == 0, done.stderr
    assert re.search(r"note: left out, .* an earlier run: worker-2\.json\n", done.stdout)
    assert "worker 2" not in done.stdout


def test_two_recordings_of_a_process_have_files_of_their_own(tmp_path):
    tf_byteps.init()
    try:
        paths = []
        for _ in range(2):
            tf_byteps.start_timeline(f"{tmp_path}/")
            _engine.exchange(np.ones(9, np.float32), name="x").wait(40)
            paths.append(tf_byteps.stop_timeline())
    finally:
        tf_byteps.shutdown()
    assert paths == [f"{tmp_path}/worker-0.json", f"{tmp_path}/worker-0.2.json"]
    assert len(timeline.read(tmp_path)) == 2
