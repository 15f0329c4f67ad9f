"""The clauses that bpslaunch makes of what workers have told."""

import pytest

from tf_byteps.launch.summary import Farewells
from tf_byteps.metrics import farewell

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
def farewells():
    made = Farewells()
    yield made
    made.close()


def tell(farewells, rank, **changes):
    path = farewells.variables["BYTEPS_SUMMARY_FILE"]
    farewell.tell(path, rank, farewell.counts({**_COUNTERS, **changes}), None)


def test_epochs_of_a_worker_are_added_and_workers_are_averaged(farewells):
    tell(farewells, 0)
    tell(farewells, 0, lost_servers=1)
    tell(farewells, 1, steps=20, pushed_bytes=4e6)
    assert farewells.text(2) == (
        "; 20 steps of 37.5 ms, 20% of it exposed communication; 640 samples/s; "
        "4.0 MB sent per worker; "
        "3 parts pushed again; 3 reconnects; 1 lost server"
    )


def test_what_is_not_known_is_left_out(farewells):
    tell(farewells, 0, unmeasured_steps=10, samples=0, pushed_bytes=0, retried_parts=0, paths=[])
    assert farewells.text(1) == "; 10 steps of 50.0 ms"
    assert farewells.text(3) == "; 10 steps of 50.0 ms (of 1 of 3 workers)"


def test_who_tells_nothing_adds_nothing(farewells, tmp_path):
    assert farewells.text(1) == ""
    with open(farewells.variables["BYTEPS_SUMMARY_FILE"], "a") as file:
        file.write('[]\n{"steps": 1}\n{"steps"')
    assert farewells.text(1) == ""
    (tmp_path / "another").touch()
    (tmp_path / "link").symlink_to(tmp_path / "another")
    for path in tmp_path / "nowhere", tmp_path / "another", tmp_path / "link":
        farewell.tell(str(path), 0, farewell.counts(_COUNTERS), None)
    assert (tmp_path / "another").read_bytes() == b""
    assert farewell.counts({}) == {}
