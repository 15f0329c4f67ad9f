"""One of 3 workers leaves `fit` by an exception that its program catches."""

import os

import numpy as np
import pytest

import tf_byteps
from tests import workers

# One group of processes serves all tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(900)

_PACKAGE = os.path.join(os.path.dirname(tf_byteps.__file__), "")
PROGRAM = os.path.join(os.path.dirname(__file__), "leaving_programs.py")
# How often the others wait for who has left: at a step, and with the strategy where the last epoch
# ends, too.
SCENARIOS = {"left_by_an_exception": 2, 'left_by_an_exception={"distributed_optimizer": true}': 1}
# What an optimizer makes of the workers' gradients: their sum within a replica, otherwise their
# average.
LOOPS = {
    "looped_after_an_exception": 3,
    'looped_after_an_exception={"distributed_optimizer": true}': 1,
}
_OTHERS = (
    "evaluated_after_an_exception",
    "left_outside_fit",
    "calls_that_differ",
    "left_by_an_error_of_tensorflow",
    "left_while_tracing",
    "frames_of_an_error",
    "what_differs",
)


@pytest.fixture(scope="module")
def group():
    return workers.run(PROGRAM, [*SCENARIOS, *LOOPS, *_OTHERS], 3)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_others_are_told_and_all_train_on(group, scenario):
    first, *others = group[scenario]
    assert first["said"] == ["OSError: no space left"] * 2
    for other in others:
        assert len(other["said"]) == SCENARIOS[scenario]
        for message in other["said"]:
            assert message.startswith('CancelledError: tensor "')
            assert "worker 0 has given it up: its fit failed with OSError: no space left" in message
        assert other["weights"] == first["weights"]
        assert other["total"] == first["total"] == 3.0


@pytest.mark.parametrize("scenario", LOOPS)
def test_a_traced_loop_goes_on_in_step_after_that(group, scenario):
    """However soon it begins: no call meets the training's exchanges, nor another call."""
    for rank, result in enumerate(group[scenario]):
        if rank == 0:
            assert result["said"] == "OSError: no space left"
        else:
            reported = "worker 0 has given it up: its fit failed with OSError: no space left"
            assert reported in result["said"]
        factor = LOOPS[scenario]
        assert result["calls"] == [[factor * (100.0 * call + 1)] * 6 for call in range(1, 5)]
        assert result["total"] == 3.0


def test_evaluations_and_predictions_meet_after_that(group):
    """None of them is given up, nor takes what others send for the training."""
    first, *others = group["evaluated_after_an_exception"]
    assert first[0] == ["OSError: no space left"]
    for other in others:
        assert "worker 0 has given it up: its fit failed with OSError: no space left" in other[0][0]
    for said, (evaluated, predicted, *again), expected, weights in (first, *others):
        assert len(said) == 1
        assert again == [evaluated, predicted] == first[1][:2]
        assert evaluated == pytest.approx(expected, rel=1e-5)
        assert weights == first[3]


def test_an_evaluation_and_a_prediction_end_on_all_workers(group):
    """So the others need not wait for BYTEPS_OPERATION_TIMEOUT, and meet in the next ones."""
    first, *others = group["left_outside_fit"]
    assert first[0] == ["OSError: no space left"] * 2
    for other in others:
        for message, method in zip(other[0], ("evaluate", "predict"), strict=True):
            reported = f"worker 0 has given it up: its {method} failed with OSError: no space left"
            assert message.startswith('CancelledError: tensor "') and reported in message
    for _, (evaluated, predicted, *again), weights in (first, *others):
        assert again == [evaluated, predicted] == first[1][:2]
        assert weights == first[2]


def test_a_worker_that_is_lost_before_an_evaluation_is_named():
    group = workers.run(PROGRAM, ["lost_before_an_evaluation"], 2)
    kind, message, lost = group.of_worker(0, "lost_before_an_evaluation")
    assert (kind, lost) == ("UnavailableError", 1)
    assert message.startswith('tensor "callbacks') and "worker 1" in message


def test_methods_that_differ_are_named(group):
    expected = (
        "worker 0 calls predict, worker 1 calls evaluate: all workers must call the same methods "
        "of a model, in the same order"
    )
    assert group["calls_that_differ"] == [expected] * 3


def test_the_others_learn_what_tensorflow_says(group):
    """Not the line above it, that it was in a graph."""
    first, *others = group["left_by_an_error_of_tensorflow"]
    assert "label value of 7" in first[0] and "img_500" in first[1]
    for label, image in others:
        assert "worker 0 has given it up: its fit failed with InvalidArgumentError: " in label
        assert "label value of 7 which is outside the valid range of [0, 3)" in label
        assert "ValueError: broken image img_500.jpg" in image


def test_the_others_learn_of_an_error_while_a_step_is_traced(group):
    results = group["left_while_tracing"]
    for rank, result in enumerate(results):
        assert result["said"].keys() == {"train_step", "call"}
        for said in result["said"].values():
            assert said.startswith("ValueError: " if rank == 1 else "CancelledError: "), said
            assert "no such feature: age" in said
            if rank != 1:
                cause = "its fit failed with ValueError: no such feature: age"
                assert said.endswith(f"worker 1 has given it up: {cause}")
        assert result["weights"] == results[0]["weights"]


def test_epochs_and_learning_rates_that_differ_are_named(group):
    """The first epoch's error on all workers, the rate as a warning of worker 0."""
    results = group["what_differs"]
    for said, rate, error in results:
        assert error == (
            "worker 0 calls fit with epochs=2, worker 1 with epochs=3: all workers must train for "
            "the same epochs"
        )
        assert rate == np.float32(0.1)
        assert [text for text in said if "learning rate" in text] == (
            ["the learning rate is 0.1 on worker 0 and 0.2 on worker 1: worker 0's is used"]
            if said is results[0][0]
            else []
        )


def test_a_traceback_has_no_frames_of_ours_unless_they_are_asked_for(group):
    for filtered, whole in group["frames_of_an_error"]:
        assert filtered[0] == filtered[-1] == PROGRAM
        assert not any(name.startswith(_PACKAGE) for name in filtered)
        assert any(name.startswith(_PACKAGE) for name in whole)
