"""Two workers, or three, show what one process shows: whole programs, which nobody adapted."""

import pytest

from tests.cluster import ROOT
from tests.foreign import comparing, documented, running


def _parameters():
    return [
        pytest.param(name, workers, id=f"{name}-{workers}", marks=_marks(program, workers))
        for name, program in running.all_programs().items()
        for workers in (2, 3)
    ]


def _marks(program, workers):
    return () if program.quick and workers == 2 else pytest.mark.slow


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    return comparing.results_of(request, test_program, tmp_path_factory)


@pytest.mark.time_limit(2 * comparing.GROUP_SECONDS)
@pytest.mark.parametrize(("name", "workers"), _parameters())
def test_program(results, name, workers):
    comparing.check(results, name, workers, running.all_programs()[name].differs)


def test_documented():
    """docs/strategy_tests.md has the rows that `python -m tests.foreign` prints."""
    assert documented.markdown() in (ROOT / "docs" / "strategy_tests.md").read_text()
