"""The fault suite; most of it is slow and runs in `make test-faults`."""

import pytest

from tests.faults import suite

# One of each role and kind; and of each phase.
_QUICK = {
    "worker stop mid-frame 2 workers",
    "server stop declare 2 workers",
    "scheduler kill declare 3 workers",
    "scheduler stop mid-round 2 workers",
    "worker kill rendezvous 2 workers",
    "server kill shutdown 3 workers",
}


# Both in another phase.
_EXTENDED = {"worker kill mid-round 2 workers", "server kill mid-frame 3 workers"}


def _marked(case):
    marks = () if str(case) in _QUICK else pytest.mark.slow
    if str(case) in _EXTENDED:
        marks = pytest.mark.extended
    return pytest.param(case, marks=marks, id=str(case).replace(" ", "-"))


def test_the_quick_cases_exist():
    assert {str(case) for case in suite.cases()} >= _QUICK | _EXTENDED


@pytest.mark.parametrize("case", [_marked(case) for case in suite.cases()])
def test_a_fault(case):
    result = suite.run(case)
    assert not result.faults, f"seed {case.seed}\n{result.text}"
