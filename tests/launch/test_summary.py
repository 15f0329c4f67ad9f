"""The clauses that bpslaunch makes of what workers have told."""

import pytest

from tf_byteps.launch.summary import ExitSummaries
from tf_byteps.metrics import exit_summary

_PATHS = [{"reconnects": 1}, {"reconnects": 0}]
_COUNTERS = {
    "steps": 10,
    "unmeasured_steps": 0,
    "step_seconds": 0.5,
    "exposed_seconds": 0.1,
    "samples": 160,
    "pushed_bytes": 2e6,
    "retried_parts": 1,
    "lost_servers": 0,
    "paths": _PATHS,
}


@pytest.fixture
def summaries():
    made = ExitSummaries()
    yield made
    made.close()


def tell(summaries, rank, **changes):
    path = summaries.variables["BYTEPS_SUMMARY_FILE"]
    exit_summary.report(path, rank, exit_summary.counts({**_COUNTERS, **changes}), None)


def test_epochs_of_a_worker_are_added_and_workers_are_averaged(summaries):
    tell(summaries, 0)
    tell(summaries, 0, lost_servers=1)
    tell(summaries, 1, steps=20, pushed_bytes=4e6)
    assert summaries.text(2) == (
        "; 20 steps of 37.5 ms, 20% of it exposed communication; 640 samples/s; "
        "4.0 MB sent per worker; "
        "3 parts pushed again; 3 reconnects; 1 lost server"
    )


def test_what_is_not_known_is_left_out(summaries):
    tell(summaries, 0, unmeasured_steps=10, samples=0, pushed_bytes=0, retried_parts=0, paths=[])
    assert summaries.text(1) == "; 10 steps of 50.0 ms"
    assert summaries.text(3) == "; 10 steps of 50.0 ms (of 1 of 3 workers)"


def test_who_tells_nothing_adds_nothing(summaries, tmp_path):
    assert summaries.text(1) == ""
    with open(summaries.variables["BYTEPS_SUMMARY_FILE"], "a") as file:
        file.write('[]\n{"steps": 1}\n{"steps"')
    assert summaries.text(1) == ""
    (tmp_path / "another").touch()
    (tmp_path / "link").symlink_to(tmp_path / "another")
    for path in tmp_path / "nowhere", tmp_path / "another", tmp_path / "link":
        exit_summary.report(str(path), 0, exit_summary.counts(_COUNTERS), None)
    assert (tmp_path / "another").read_bytes() == b""
    assert exit_summary.counts({}) == {}
