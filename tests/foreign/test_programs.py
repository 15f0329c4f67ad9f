"""Two workers, or three, show what one process shows: whole programs, which nobody adapted."""

import pytest

from tests import side_by_side
from tests.cluster import ROOT, run_workers
from tests.foreign import running, table
from tests.selection import asked

_GROUP_SECONDS = 1500


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
    """A function of a number of workers: what each showed; of 0: what the single process did."""
    groups = {}

    def of(workers):
        if workers not in groups:
            groups[workers] = run_workers(
                running.run_programs,
                workers=max(workers, 1),
                servers=1 if workers else 0,
                timeout=_GROUP_SECONDS,
                args=(
                    not workers,
                    str(tmp_path_factory.mktemp("files")),
                    _asked_for(request, workers),
                ),
            )
        return groups[workers]

    return of


def _asked_for(request, workers):
    """The programs of this run of pytest; one group of processes runs them all."""
    rows = asked(request, test_program)
    names = [row["name"] for row in rows if workers in (0, row["workers"])]
    return list(dict.fromkeys(names))


@pytest.mark.time_limit(2 * _GROUP_SECONDS)
@pytest.mark.parametrize(("name", "workers"), _parameters())
def test_program(results, name, workers):
    program = running.all_programs()[name]
    single, ours = side_by_side.checked(name, results(0)[0], results(workers))
    unlike = {key: side_by_side.difference(ours[key], single[key]) for key in single}
    unlike = {key: value for key, value in unlike.items() if not value <= program.tolerance}
    if program.on_average:
        unlike = {key: value for key, value in unlike.items() if key.startswith("log")}
    if program.differs:
        assert unlike, "one process shows the same: the row need not say that it differs"
        unlike = {key: value for key, value in unlike.items() if key.startswith("same")}
    assert not unlike, f"differs from one process, relative or absolute: {unlike}"


def test_documented():
    """docs/strategy_tests.md has the rows that `python -m tests.foreign` prints."""
    running.all_programs()
    assert table.markdown() in (ROOT / "docs" / "strategy_tests.md").read_text()
