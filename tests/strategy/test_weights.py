"""Weights stay equal everywhere, and what would make them differ is seen."""

import os

import numpy as np
import pytest

from tests import workers

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(620)

PROGRAM = os.path.join(os.path.dirname(__file__), "weights_programs.py")
BATCH_LOGS = 'drifting={"callback": "FromBatchLogs"}'
ASSIGNED = 'drifting={"callback": "AssignOnOne"}'
SCENARIOS = [
    "forgotten_broadcast",
    'forgotten_broadcast={"broadcasts": true}',
    "noise",
    "equal",
    BATCH_LOGS,
    ASSIGNED,
    "error_of_drift",
    "drift_unseen",
    "float8",
    'float8={"distributed": true}',
    "freed",
    "after_shutdown",  # last
]


@pytest.fixture(scope="module")
def group():
    return workers.run(PROGRAM, SCENARIOS, 2)


@pytest.fixture(scope="module")
def single():
    """Without the strategy, and with it on one worker."""
    group = workers.run(PROGRAM, ['noise={"plain": true}', "noise", "float8"], 0)
    return {name: group[name][0] for name in ('noise={"plain": true}', "noise", "float8")}


def test_replicas_draw_their_own_numbers(group):
    first, second = group["noise"]
    ways = list(zip(first["drawn"], second["drawn"], strict=True))
    assert len(ways) == 5
    for ours, theirs in ways[:-1]:
        assert len(ours) == 2  # steps
        assert len({str(row) for step in [*ours, *theirs] for row in step}) == 8
    ours, theirs = ways[-1]
    assert ours == theirs  # by a seed that is a number
    assert first["states"] == second["states"]
    assert first["kernel"] == second["kernel"]


def test_one_worker_and_worker_0_draw_what_one_process_draws(group, single):
    plain, one_worker = single['noise={"plain": true}'], single["noise"]
    assert one_worker == plain
    worker_0 = group["noise"][0]
    assert worker_0["states"] == plain["states"]
    assert worker_0["kernel"] == plain["kernel"]
    for ours, theirs in zip(worker_0["drawn"], plain["drawn"], strict=True):
        # Two of the four rows, whose numbers are the first of those drawn.
        np.testing.assert_array_equal(ours[0], theirs[0][:2])


def test_nothing_is_said_of_weights_that_are_equal(group):
    assert group["equal"] == [[], []]


@pytest.mark.parametrize("scenario, variable", [(BATCH_LOGS, "learning_rate"), (ASSIGNED, "bias")])
def test_the_first_variable_that_differs_is_named(group, scenario, variable):
    warnings, others = group[scenario]
    assert not others
    assert warnings
    assert all("worker 1 is not that of worker 0" in line for line in warnings)
    assert any(variable in line or "kernel" in line for line in warnings)
    assert "BYTEPS_CHECK_WEIGHTS=error" in warnings[0]


def test_a_difference_can_be_an_error_or_unseen(group):
    for failure in group.failures("error_of_drift"):
        assert failure.kind == "BytePSError"
        assert "worker 1 is not that of worker 0" in failure.message
    assert group["drift_unseen"] == [[], []]


def test_keras_works_on_after_the_job_was_left(group):
    assert group["after_shutdown"] == [True, True]


def test_float8_scales_are_those_of_the_whole_batch(group, single):
    results = group["float8"]
    assert len(results[0]) == 6
    assert results[0] == results[1]
    for name in ("inputs_scale", "inputs_amax_history"):  # which depend on no rounded weight
        np.testing.assert_allclose(results[0][name], single["float8"][name], rtol=1e-6)
    # Gradients of outputs depend on rounded weights. Those of a worker's own mean are larger.
    for name in ("outputs_grad_scale", "outputs_grad_amax_history"):
        np.testing.assert_allclose(results[0][name], single["float8"][name], rtol=1e-3)


def test_float8_with_a_distributed_optimizer_scales_alike(group):
    results = group['float8={"distributed": true}']
    assert len(results[0]) == 6
    assert results[0] == results[1]


def test_a_forgotten_broadcast_is_named(group):
    (warning,), others = group["forgotten_broadcast"]
    assert not others
    assert "before the first step" in warning and "kernel" in warning
    assert "BroadcastGlobalVariablesCallback" in warning
    assert group['forgotten_broadcast={"broadcasts": true}'] == [[], []]


def test_weights_are_freed_with_their_model(group):
    assert group["freed"] == [[], []]
