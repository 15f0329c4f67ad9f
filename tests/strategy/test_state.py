"""What happens to variables that no optimizer changes: statistics, counters, queues, states
(protocol rule 34)."""

import os

import numpy as np
import pytest

from tests import workers

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(620)

PROGRAM = os.path.join(os.path.dirname(__file__), "state_programs.py")
SIZE = 3  # a third of a float32 is rounded
WHOLE_BATCH = f'stateful_rnn={{"rows_of_a_piece": {2 * SIZE}}}'
WHOLE_BATCH_PREDICTED = f'stateful_rnn={{"rows_of_a_piece": {2 * SIZE}, "predicts": true}}'
PREDICTED = 'stateful_rnn={"predicts": true}'
SCENARIOS = [
    "evaluated_within_an_epoch",
    "trained_on_batches",
    "buffers",
    "counters",
    "queue",
    "bad_kind",
    "another_fit",
    "optimizer_built_outside",
    "stateful_rnn",
    PREDICTED,
    WHOLE_BATCH_PREDICTED,
    WHOLE_BATCH,
    "momentum_encoder",
    "metrics",
    "python_metric",
    "outputs",
    "scalar_output",
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return f'saved_within_an_epoch={{"folder": "{tmp_path_factory.mktemp("saved")}"}}'


@pytest.fixture(scope="module")
def saved_by_the_program(tmp_path_factory):
    return f'saved_by_the_program={{"folder": "{tmp_path_factory.mktemp("own")}"}}'


@pytest.fixture(scope="module")
def group(saved, saved_by_the_program):
    return workers.run(PROGRAM, [*SCENARIOS, saved, saved_by_the_program], SIZE)


@pytest.fixture(scope="module")
def single():
    """The same without the strategy, in one process; or with it on one worker."""
    plain = [f'{scenario}={{"plain": true}}' for scenario in ("metrics", "outputs")]
    group = workers.run(PROGRAM, ["momentum_encoder", *plain], 0)
    return {scenario: group[scenario][0] for scenario in ("momentum_encoder", *plain)}


@pytest.mark.parametrize("scenario", ["evaluated_within_an_epoch", "trained_on_batches"])
def test_statistics_are_the_same_everywhere(group, scenario):
    results = group[scenario]
    assert len({str(seen) for seen in results[0]}) == 3  # they move
    assert all(result == results[0] for result in results)


def test_constants_keep_their_bits_and_large_statistics_do_not_overflow(group):
    for result in group["buffers"]:
        assert result["mask"] == [np.finfo("float32").min, 0.0]
        assert result["changed"] == 0
        assert result["largest"][0] == np.finfo("float32").max
        assert 2.9e38 <= result["largest"][1] <= 3.0e38


def test_counters_count_steps_without_rows(group):
    assert group["counters"] == [(10, True)] * SIZE


def test_a_queue_stays_the_workers_own_if_it_says_so(group):
    results = group["queue"]
    assert all(result["own is of rows"] for result in results)
    assert len({str(result["own"]) for result in results}) == SIZE
    assert not any(result["warnings of own"] for result in results)
    # Unmarked it is averaged, with a warning of worker 0.
    assert all(result[None] == results[0][None] for result in results)
    (warning,) = results[0]["warnings of None"]
    assert "queue" in warning and "byteps_kind" in warning


def test_a_kind_that_does_not_exist_is_refused(group):
    for failure in group.failures("bad_kind"):
        assert failure.kind == "ValueError"
        assert "byteps_kind" in failure.message and "'mine'" in failure.message
        assert "statistic" in failure.message


def test_states_of_an_rnn_stay_the_workers_own(group):
    assert len({str(result) for result in group["stateful_rnn"]}) == SIZE


def test_a_stateful_model_predicts_for_the_whole_batch(group):
    results = group[PREDICTED]
    assert np.shape(results[0]) == (8 * SIZE, 1)
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("scenario", [WHOLE_BATCH, WHOLE_BATCH_PREDICTED])
def test_a_model_for_the_whole_batch_is_refused(group, scenario):
    for failure in group.failures(scenario):
        assert "is made for batches of 6 rows" in failure.message
        assert "divided by 3 workers" in failure.message


def test_another_fit_leaves_a_worker_its_own(group):
    results = group["another_fit"]
    for result in results:
        (first_queue, _), (second_queue, slot) = result["begins"]
        assert first_queue == [7.0] * 4, "worker 0's initial value"
        assert second_queue == result["ends"][0]
        assert slot == [5.0], "worker 0's"
    assert len({str(result["ends"]) for result in results}) == SIZE


def test_statistics_that_are_saved_within_an_epoch_are_those_of_all_workers(group, saved):
    results = group[saved]
    assert len({str(result["after"][0]) for result in results}) == SIZE
    for result in results:
        (after,) = result["after"][1]
        np.testing.assert_allclose(after, result["saved"], rtol=1e-6)
        assert result == {**results[0], "after": result["after"]}


def test_a_save_of_a_workers_own_is_said_once(group, saved_by_the_program):
    for said in group[saved_by_the_program]:
        assert said["checkpoint"] == said["at the end"] == []
        (warning,) = said["own"]
        assert "gets the moving statistics and accumulated gradients of this worker" in warning


def test_an_optimizer_may_be_built_outside_of_the_scope(group):
    results = group["optimizer_built_outside"]
    assert all(result == results[0] for result in results)


def test_a_frozen_weight_that_steps_change_is_the_same_everywhere(group, single):
    results = group["momentum_encoder"]
    assert all(result == results[0] for result in results)
    np.testing.assert_allclose(results[0], single["momentum_encoder"], rtol=1e-5, atol=1e-6)


def _assert_close(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-5, err_msg=key)


def test_metrics_count_every_row_once(group, single):
    """A running maximum, a flag, a count of few bits, and a metric that is not reset."""
    for result in group["metrics"]:
        for kind, expected in single['metrics={"plain": true}'].items():
            found = result[kind]
            _assert_close(found["logs"], expected["logs"])
            _assert_close(found["shown"], expected["shown"])
            for ours, theirs in zip(found["evaluated"], expected["evaluated"], strict=True):
                _assert_close(ours, theirs)


def test_a_metric_with_its_state_in_python_is_averaged_with_a_warning(group):
    results = group["python_metric"]
    for result in results:
        assert result["logs"] == results[0]["logs"]
        assert result["evaluated"] == results[0]["evaluated"]
    (warning,) = [line for line in results[0]["warnings"] if "python" in line]
    assert "Metric.add_variable" in warning


def test_predictions_of_every_dtype(group, single):
    assert group["outputs"] == [single['outputs={"plain": true}']] * SIZE


def test_a_scalar_prediction_is_refused(group):
    for failure in group.failures("scalar_output"):
        assert failure.kind == "ValueError"
        assert "return a value for each row" in failure.message
