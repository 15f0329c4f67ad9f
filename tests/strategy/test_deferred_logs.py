"""Logs of a step are read when the next one has been started, where nobody can tell."""

import os

import pytest

from tests import workers

PROGRAM = os.path.join(os.path.dirname(__file__), "deferred_logs_programs.py")
STEPS = 4
SAVES_EPOCHS = 'saves={"save_freq": "epoch"}'
SAVES_BATCHES = 'saves={"save_freq": 2}'
SCENARIOS = [
    "nobody_looks",
    "somebody_looks",
    SAVES_EPOCHS,
    SAVES_BATCHES,
    "bar",
    "interrupted",
    "used_again",
]


@pytest.fixture(scope="module")
def group():
    return workers.run(PROGRAM, SCENARIOS, 2)


def _each(late):
    """Each batch of two epochs and the steps that had begun; the last of an epoch is never late."""
    batches = [(epoch, batch) for epoch in range(2) for batch in range(STEPS)]
    return [[batch, epoch * STEPS + min(batch + 1 + late, STEPS)] for epoch, batch in batches]


def test_a_step_is_started_before_the_logs_of_the_one_before_are_read(group):
    assert group["nobody_looks"] == [_each(late=1)] * 2


def test_a_callback_that_looks_at_batches_gets_each_when_it_has_ended(group):
    assert group["somebody_looks"] == [_each(late=0)] * 2


def test_callbacks_that_save_epochs_do_not_look_at_batches(group):
    assert group[SAVES_EPOCHS] == [_each(late=1)] * 2
    assert group[SAVES_BATCHES] == [_each(late=0)] * 2


def test_a_bar_is_complete_before_the_validation(group):
    assert [reported for reported, _ in group["bar"]] == [_each(late=1)] * 2
    first, second = group["bar"][0][1].split("Epoch 2/2")
    for epoch in first, second:
        assert f"{STEPS}/{STEPS}" in epoch


def test_a_batch_of_an_interrupted_training_is_forgotten(group):
    assert group["interrupted"] == [[0, *range(STEPS)]] * 2


def test_a_list_of_callbacks_stays_the_programs(group):
    assert group["used_again"] == [[*range(STEPS)] * 3] * 2
