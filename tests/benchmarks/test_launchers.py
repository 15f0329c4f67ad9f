"""The benchmark of launchers, with those that are here."""

import pytest

from benchmarks import launchers
from benchmarks.sessions import BenchmarkError


def test_bpslaunch_is_measured():
    rows = launchers.run(workers=2, rounds=1, step="exchange", with_ray=False)
    measured = {row.figure: row for row in rows if row.runs is not None}
    assert measured["bpslaunch: command to first step"].runs.median > 0
    (ray,) = (row for row in rows if row.figure == "Ray: command to first step")
    assert ray.runs is None and "left out" in ray.note


def test_what_a_job_that_fails_has_said_is_shown():
    with pytest.raises(BenchmarkError, match="0 steps:\n(.|\n)*no_such_step"):
        launchers.run(workers=2, rounds=1, step="no_such_step", with_ray=False)
