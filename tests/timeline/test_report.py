"""`python -m tf_byteps.timeline` on the files of a real job."""

import json
import subprocess
import sys

import numpy as np
import pytest

import tf_byteps
from tests.cluster import ROOT, clean_environment, run_workers
from tf_byteps import _engine, timeline
from tf_byteps.timeline.report import breakdown
from tf_byteps.timeline.scheduler_recorder import PID
from tf_byteps.timeline.server_recorder import FIRST_PID
from tf_byteps.timeline.steps import covered

SECONDS = 40
STEPS = 4


def some_steps():
    tf_byteps.init()
    for _ in range(STEPS):
        handles = [
            _engine.exchange(np.ones(50_000, np.float32), name=name) for name in ("kernel", "bias")
        ]
        for handle in handles:
            handle.wait(SECONDS)
    tf_byteps.shutdown()


def report(*arguments):
    command = [sys.executable, "-m", "tf_byteps.timeline", *map(str, arguments)]
    return subprocess.run(
        command, env=clean_environment(), cwd=ROOT, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("timeline")
    run_workers(some_steps, env={"BYTEPS_TIMELINE": f"{path}/"})
    return path


def test_it_prints_every_worker_and_merges(folder):
    done = report(folder)
    assert done.returncode == 0 and done.stderr == "" and "note:" not in done.stdout
    for rank in (0, 1):
        assert f"worker {rank}, {STEPS} steps: a step takes " in done.stdout
    # What is sent in the event that enqueues it has spent no time in the queue, and is told so.
    for stage in ("queue", "push", "sum", "pull"):
        assert f"\n  {stage} " in done.stdout
    assert "exposed communication" in done.stdout and "slowest tensors" in done.stdout
    merged = folder / "job.json"
    assert str(merged) in done.stdout
    events = json.loads(merged.read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1, FIRST_PID, PID}
    assert report(folder).stdout == done.stdout, "the merged file is not read again"


def test_the_numbers_are_those_of_the_parts(folder):
    parts = [part for part in timeline.read(folder) if part.worker == 1]
    found = breakdown(parts)
    assert found["steps"] == STEPS
    assert found["last"] in ("kernel", "bias")
    longest = max(part.done for part in parts) - min(part.enqueued for part in parts)
    assert 0 < found["exchange"] * STEPS <= longest
    assert all(0 <= time <= longest for time in found["stages"].values())


def test_time_that_overlaps_counts_once():
    assert covered([]) == 0
    assert covered([(8, 9), (0, 4), (2, 5), (3, 4)]) == 6


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"otherData": {"format": "tf_byteps timeline 9"}}', "\x00"]
)
def test_what_is_no_timeline_gives_one_sentence(tmp_path, text):
    (tmp_path / "worker-0.json").write_text(text)
    done = report(tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "worker-0.json is not a timeline" in done.stderr


def test_an_empty_or_missing_place_gives_one_sentence(tmp_path):
    assert "no timeline: no file is named" in report(tmp_path).stderr
    done = report(tmp_path / "missing")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "No such file" in done.stderr


def test_an_output_that_cannot_be_written_gives_one_sentence(folder):
    done = report(folder, "--out", folder / "worker-0.json" / "x.json")
    assert done.returncode == 2 and done.stderr.count("\n") == 1


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_file_that_is_cut_off_gives_what_was_recorded_until_then(folder, tmp_path, share):
    for name in ("worker-0.json", "timeline-server-0.json"):
        whole = (folder / name).read_text()
        (tmp_path / name).write_text(whole[: round(len(whole) * share)])
    done = report(tmp_path)
    assert done.returncode == 0, done.stderr
    notes = [line for line in done.stdout.splitlines() if line.startswith("note: ")]
    assert "worker-0.json ends early" in notes[0]
    assert "timeline-server-0.json ends early" in notes[1]
    assert "worker 1 has left no file" in notes[2]
    found = timeline.read(tmp_path)
    recorded = [part for part in timeline.read(folder) if part.worker == 0]
    assert 0 < len(found) < len(recorded)
    assert all(part in recorded for part in found)
