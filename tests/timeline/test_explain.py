"""`--explain` on jobs with a planted cause, and `bpslaunch --timeline`."""

import re
import subprocess
import sys
import time

import numpy as np

import tf_byteps
from tests.cluster import ROOT, clean_environment, run_workers
from tf_byteps import _engine, timeline
from tf_byteps.timeline.explain import explain
from tf_byteps.timeline.parts import Part
from tf_byteps.timeline.steps import without_start

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


def with_exchanges(elements, seconds, name="gradient/dense"):
    """Steps that compute for so long, on all workers, and then exchange a tensor."""
    tf_byteps.init()
    array, output = np.ones(elements, np.float32), np.ones(elements, np.float32)
    for _ in range(6):
        time.sleep(seconds)
        _engine.exchange(array, name=name, output=output).wait(SECONDS)
    tf_byteps.shutdown()


def test_local_steps_are_advised_where_exchanges_take_most_of_a_step(tmp_path):
    run_workers(with_exchanges, args=(10_000_000, 0.0), env={"BYTEPS_TIMELINE": f"{tmp_path}/"})
    lines = explain(timeline.read(tmp_path))
    (advice,) = [line for line in lines if "local steps would pay" in line]
    said = re.search(r"of (\d+) ms a step, (\d+) ms .* would take about (\d+) ms", advice)
    step, exchange, left = map(int, said.groups())
    assert step / 2 < exchange <= step
    assert abs(left - (step - exchange * 31 / 32)) <= 2


def test_local_steps_are_not_advised_where_computing_takes_the_time(tmp_path):
    run_workers(with_exchanges, args=(1000, 0.1), env={"BYTEPS_TIMELINE": f"{tmp_path}/"})
    sentence, *lines = explain(timeline.read(tmp_path))
    assert "compute" in sentence and not any("local steps" in line for line in lines)


def test_local_steps_are_not_advised_where_a_straggler_is_waited_for(tmp_path):
    run_workers(with_a_slow_worker, env={"BYTEPS_TIMELINE": f"{tmp_path}/"})
    assert not any("local steps" in line for line in explain(timeline.read(tmp_path)))


def test_local_steps_are_not_advised_to_those_who_make_them(tmp_path):
    arguments = 10_000_000, 0.0, "outer/dense"
    run_workers(with_exchanges, args=arguments, env={"BYTEPS_TIMELINE": f"{tmp_path}/"})
    assert not any("local steps" in line for line in explain(timeline.read(tmp_path)))


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
    # Initial values and agreements, before the first step, are not of a step.
    assert "/sizes" not in done.stderr
    again = subprocess.run(command, timeout=60, **how)
    assert again.returncode == 2 and "name another file" in again.stderr


def launched(file, *command, workers=2):
    words = [sys.executable, "-m", "tf_byteps.launch", "-np", str(workers)]
    words += ["--timeline", str(file)]
    how = {"env": clean_environment(), "cwd": ROOT, "text": True}
    how |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*words, *command], **how)


def test_a_good_job_ends_well_without_a_timeline(tmp_path):
    running = launched(tmp_path / "job.json", "true", workers=1)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 0
    assert "WARNING no timeline: no process of the job wrote one into" in said
    assert list(tmp_path.iterdir()) == []


def test_a_timeline_that_cannot_be_merged_is_a_warning(tmp_path):
    """Only the scheduler wrote one."""
    running = launched(tmp_path / "job.json", "true")
    _, said = running.communicate(timeout=60)
    assert running.returncode == 0
    assert "have not been merged" in said


def test_where_no_timeline_can_be_written_nothing_starts(tmp_path):
    (tmp_path / "file").touch()
    running = launched(tmp_path / "file" / "job.json", "touch", f"{tmp_path}/begun")
    _, said = running.communicate(timeout=60)
    assert running.returncode == 2 and "cannot be written: Not a directory" in said
    assert not (tmp_path / "begun").exists()


def test_two_jobs_at_once_do_not_share_a_timeline(tmp_path):
    with launched(tmp_path / "job.json", "sh", "-c", "echo begun; sleep 600") as first:
        try:
            first.stdout.readline()
            second = launched(tmp_path / "job.json", "true")
            _, said = second.communicate(timeout=60)
        finally:
            first.terminate()
    assert second.returncode == 2
    assert "a running job writes there: name another file" in said


def a_part(worker, number, at, name="gradient/x"):
    """An exchange of half a millisecond."""
    times = dict.fromkeys(["computed", "reduced", "copied_out", "copied_in", "broadcast"])
    stages = ["placed", "pushed", "arrival_began", "arrived", "answered"]
    stages += ["reply_began", "reply_received"]
    times |= {stage: at + 50_000 * n for n, stage in enumerate(stages, 1)}
    about = {"kind": "sum", "dtype": "float32", "priority": 0, "status": "OK", "part": 0}
    about |= {"parts": 1, "bytes": 4000, "server": 0, "enqueued": at, "done": at + 500_000}
    return Part(worker=worker, tensor=name, round=number, **about, **times)


def test_where_nothing_is_to_be_gained_it_says_so():
    """Steps of 100 ms."""
    parts = [a_part(w, n, 100_000_000 * n + 1) for w in range(2) for n in range(6)]
    _, *lines = explain(parts)
    assert lines == ["  nothing to gain here: at most 0.5% of a step"]


def test_what_comes_before_the_first_step_is_left_out():
    first = a_part(0, 0, 100, name="initial value/adam/iteration")
    steps = [a_part(0, n, 100_000_000 * (n + 1)) for n in range(3)]
    assert without_start([first, *steps]) == steps
    others = [a_part(0, n, 100 + n, name="mine") for n in range(3)]
    assert without_start(others) == others
