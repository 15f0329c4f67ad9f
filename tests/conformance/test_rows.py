"""Two workers give what one process gives, in every way to use tf_byteps."""

import collections

import numpy as np
import pytest

from tests.cluster import run_workers
from tests.conformance import running
from tests.conformance.sides import MODES, SINGLE, WORKERS

_NOT_RUN = {"error": "not run, because the workers were stuck in an earlier row"}


def _parameters():
    return [
        pytest.param(name, mode, id=f"{mode}-{name}")
        for name, row in running.all_rows().items()
        for mode in row.modes
    ]


@pytest.fixture(scope="module")
def selected(request):
    """The rows that this run of pytest asks for: mode -> names, and all for the single process."""
    names = collections.defaultdict(set)
    for item in request.session.items:
        if getattr(item, "originalname", "") == test_row.__name__:
            parameters = item.callspec.params
            names[parameters["mode"]].add(parameters["name"])
            names[SINGLE].add(parameters["name"])
    return {mode: sorted(rows) for mode, rows in names.items()}


@pytest.fixture(scope="module")
def reference(tmp_path_factory, selected):
    """The rows in one process that does not start tf_byteps."""
    arguments = (SINGLE, str(tmp_path_factory.mktemp("single")), selected[SINGLE])
    return run_workers(running.run_rows, workers=1, servers=0, timeout=150, args=arguments)[0]


@pytest.fixture(scope="module")
def results(tmp_path_factory, selected):
    """Mode -> what each of its workers got. Every mode is run once, when it is first needed."""
    groups = {}

    def of(mode):
        if mode not in groups:
            arguments = (mode, str(tmp_path_factory.mktemp(mode)), selected[mode])
            groups[mode] = run_workers(
                running.run_rows,
                workers=WORKERS,
                timeout=220,
                env={"BYTEPS_OPERATION_TIMEOUT": "30"},
                args=arguments,
            )
        return groups[mode]

    return of


@pytest.mark.time_limit(240)
@pytest.mark.parametrize(("name", "mode"), _parameters())
def test_row(reference, results, name, mode):
    assert "error" not in reference[name], f"single process:\n{reference[name]['error']}"
    workers = [worker.get(name, _NOT_RUN) for worker in results(mode)]
    for rank, worker in enumerate(workers):
        assert "error" not in worker, f"worker {rank}:\n{worker['error']}"
    # All workers hold the same bits.
    for rank, worker in enumerate(workers):
        assert worker["arrays"] == workers[0]["arrays"], f"worker {rank} differs from worker 0"
    rounded = running.all_rows()[name].rounded
    rtol, atol = (2e-3, 2e-4) if rounded else (1e-5, 1e-6)
    expected = reference[name]["arrays"]
    for ours, theirs in zip(workers[0]["arrays"], expected, strict=True):
        np.testing.assert_allclose(np.array(ours), np.array(theirs), rtol=rtol, atol=atol)


def test_every_mode_has_rows():
    rows = running.all_rows().values()
    for mode in MODES:
        assert sum(mode in row.modes for row in rows) > 30
