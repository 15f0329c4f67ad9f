"""What happens to state at another `fit`, in a file, and when as many workers or others go on from
it: the table of docs/strategy_contract.md, whose tests test_state_table.py lists.

Two workers train and save; then two others and three go on from their files, as one process goes on
from its own.
"""

import json
import os

import numpy as np
import pytest

from tests import side_by_side, workers

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(2500)

PROGRAM = os.path.join(os.path.dirname(__file__), "kept_state_programs.py")
TOLERANCE = 1e-9
OF_FLOAT8 = 1e-6  # scales are float32
LIKE_ONE_PROCESS = ["weights", "loss_scale", "two_optimizers", "float8", "metrics"]
OWN = ["queue", "stateful_rnn"]
CASES = [*LIKE_ONE_PROCESS, *OWN, "statistics", "noting"]
SIZES = [pytest.param(2, marks=pytest.mark.slow), 3]  # of those that go on from two workers' files
RESIDUALS = ['fits_with_residuals={"epochs": [1, 1]}', 'fits_with_residuals={"epochs": [2]}']
_EVERY = {"BYTEPS_MIN_COMPRESS_BYTES": "0"}


class Results:
    """What cases showed, of groups of processes that begin when they are asked for."""

    def __init__(self, folders):
        self._folders = folders
        self._groups = {}

    def trained(self, case, size):
        return self._group("trained", size)[self._case("trained", case, size)]

    def resumed(self, case, size):
        self._group("trained", 2 if size else 0)
        return self._group("resumed", size)[self._case("resumed", case, size)]

    def of_positions(self, size):
        return self._group("trained", size)[self._scenario("positions", size)]

    def of_residuals(self, size=2):
        group = self._group("trained", size)
        return [group[scenario] for scenario in RESIDUALS]

    def _group(self, stage, size):
        if size == 0:
            stage = "both"
        if (stage, size) not in self._groups:
            stages = ("trained", "resumed") if size == 0 else (stage,)
            scenarios = [self._case(each, case, size) for each in stages for case in CASES]
            if stage != "resumed":
                scenarios.append(self._scenario("positions", size))
            if size == 2 and stage == "trained":
                scenarios += RESIDUALS
            self._groups[stage, size] = workers.run(PROGRAM, scenarios, size, timeout=800, **_EVERY)
        return self._groups[stage, size]

    def _case(self, stage, case, size):
        return self._scenario(stage, size, case=case)

    def _scenario(self, name, size, **arguments):
        arguments["folder"] = self._folders[min(size, 2)]
        if not size:
            arguments["plain"] = True
        return f"{name}={json.dumps(arguments)}"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Three workers go on from the files of two."""
    return Results({size: str(tmp_path_factory.mktemp(f"of-{size}")) for size in (0, 2)})


def _assert_close(ours, theirs, case):
    """In the same order: names of slots follow from where an optimizer was built."""
    pairs = zip(ours.items(), theirs.values(), strict=True)
    unlike = {name: side_by_side.difference(mine, value) for (name, mine), value in pairs}
    tolerance = OF_FLOAT8 if case == "float8" else TOLERANCE
    assert not {name: value for name, value in unlike.items() if not value < tolerance}


def _assert_all_equal(shown, key):
    assert all(each[key] == shown[0][key] for each in shown)


def _check_trainings(shown, expected, case):
    """Losses and metrics, and all that the second training has left."""
    for ours in shown:
        for mine, theirs in zip(ours["trainings"], expected["trainings"], strict=True):
            _assert_close(mine["logs"], theirs["logs"], case)
    _assert_all_equal(shown, "state")
    _assert_close(shown[0]["state"], expected["state"], case)


@pytest.mark.parametrize("case", LIKE_ONE_PROCESS)
def test_another_fit_takes_over_worker_0s(results, case):
    (expected,) = results.trained(case, 0)
    _check_trainings(results.trained(case, 2), expected, case)


@pytest.mark.parametrize("case", LIKE_ONE_PROCESS)
def test_a_file_has_what_that_of_one_process_has(results, case):
    (expected,) = results.resumed(case, 0)
    shown = results.resumed(case, 3)
    _assert_all_equal(shown, "loaded")
    _assert_close(shown[0]["loaded"], expected["loaded"], case)
    saved = results.trained(case, 2)[0]["state"]
    assert _besides_seeds(shown[0]["loaded"]) == _besides_seeds(saved)


def _besides_seeds(state):
    """Of which Keras's files have none. Names and order follow from how a model was made."""
    return sorted(str(value) for name, value in state.items() if "seed" not in name)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", LIKE_ONE_PROCESS)
def test_it_goes_on_as_in_one_process(results, case, size):
    (expected,) = results.resumed(case, 0)
    _check_trainings(results.resumed(case, size), expected, case)


def test_steps_are_counted_once_for_all(results):
    state = results.resumed("weights", 3)[0]["state"]
    (steps,) = [value for path, value in state.items() if path.endswith("/steps")]
    assert steps == 20  # four epochs of five batches


# Statistics.


def test_statistics_are_averaged_where_an_epoch_ends(results):
    for shown in (results.trained("statistics", 2), results.resumed("statistics", 3)):
        for number in range(2):
            trainings = [each["trainings"][number] for each in shown]
            ends = [each["ends"] for each in trainings]
            assert len({str(each) for each in ends}) == len(shown)
            for each in trainings:
                assert each["after"] == trainings[0]["after"]
                np.testing.assert_allclose(each["after"], np.mean(ends, axis=0), atol=TOLERANCE)


@pytest.mark.parametrize("size", SIZES)
def test_all_go_on_with_the_average(results, size):
    first = results.trained("statistics", 2)[0]
    saved = first["trainings"][1]["after"]
    for shown in results.trained("statistics", 2):
        assert shown["trainings"][1]["begins"] == first["trainings"][0]["after"]
    for shown in results.resumed("statistics", size):
        assert list(shown["loaded"].values()) == list(first["state"].values())
        assert shown["trainings"][0]["begins"] == saved


# What is each worker's own.


@pytest.mark.parametrize("case", OWN)
def test_another_fit_leaves_a_worker_its_own(results, case):
    for shown in (results.trained(case, 2), results.resumed(case, 3)):
        first, second = ([each["trainings"][number] for each in shown] for number in range(2))
        assert all(each["begins"] == first[0]["begins"] for each in first)
        assert len({str(each["ends"]) for each in first}) == len(shown)
        assert [each["begins"] for each in second] == [each["ends"] for each in first]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", OWN)
def test_all_begin_with_what_the_file_has_of_worker_0(results, case, size):
    """Keras's files have no states of an RNN."""
    saved = results.trained(case, 2)[0]["trainings"][1]["after"]
    expected = saved if case == "queue" else np.zeros_like(saved).tolist()
    for shown in results.resumed(case, size):
        assert shown["trainings"][0]["begins"] == expected


def test_metrics_that_are_not_reset_go_on_with_a_workers_own_counts(results):
    """Those that are begin at zero."""
    (expected,) = results.trained("metrics", 0)
    shown = results.trained("metrics", 2)
    begins = [each["trainings"][1]["begins"] for each in shown]
    for each, (*reset, total, count) in zip(shown, begins, strict=True):
        assert not any(reset)
        assert [total, count] == each["trainings"][0]["ends"][-2:]
    of_all = np.sum(begins, axis=0)
    np.testing.assert_allclose(of_all, expected["trainings"][1]["begins"], rtol=TOLERANCE)


@pytest.mark.parametrize("size", [0, *SIZES])
def test_metrics_are_in_no_file(results, size):
    for shown in results.resumed("metrics", size):
        assert not np.any(np.concatenate([np.ravel(value) for value in shown["metrics"]]))


def test_a_variable_of_the_programs_own(results):
    """Ten, and a mean of a worker's first column with each batch: see `Noting`."""
    for stage, size in ((results.trained, 2), (results.resumed, 3)):
        for shown in stage("noting", size):
            mean, means = 10.0, []
            for batch in shown["batches"]:
                mean = 0.5 * mean + np.mean(batch)
                means.append(mean)
            first, second = shown["trainings"]
            np.testing.assert_allclose(first["ends"], [means[4]], atol=TOLERANCE)
            assert second["begins"] == first["ends"]
            np.testing.assert_allclose(second["ends"], [means[9]], atol=TOLERANCE)
            assert not any("mean" in path for path in shown["state"])


# Others.


def test_error_feedback_goes_on_at_another_fit(results):
    twice, once = results.of_residuals()
    assert twice == once


def test_epochs_begin_anew_in_the_data(results):
    (expected,) = results.of_positions(0)
    assert expected == [[number] for number in [0, 1, 2, 3] * 3]
    assert results.of_positions(2) == [expected] * 2
