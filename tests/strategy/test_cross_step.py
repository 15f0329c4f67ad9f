"""Training across steps gives what plain steps give, to the last bit, and nobody sees weights that
are behind."""

import os
import re

import numpy as np
import pytest
from selection import asked_values, some_slow

from tests import workers

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(620)

PROGRAM = os.path.join(os.path.dirname(__file__), "cross_step_programs.py")
STEPS = 50
OVERTAKEN = 6  # steps
WAYS = (
    "get_weights",
    "weights",
    "optimizer",
    "iterations",
    "evaluate",
    "test_on_batch",
    "predict",
    "predict_on_batch",
    "call",
    "train_on_batch",
    "save",
    "save_weights",
    "export",
    "set_weights",
    "learning rate",
)

ACROSS = {
    "momentum": {},
    "scheduled adam": {"optimizer": "scheduled adam"},
    "average of weights": {"optimizer": "averaging"},
    "DistributedOptimizer": {"optimizer": "distributed"},
    "input of unknown length": {"source": "generator"},
    "steps per execution": {"steps_per_execution": 4, "optimizer": "scheduled adam"},
    "rows of an embedding as a dense tensor": {"sparse_as_dense": True},
    "two steps per execution": {"steps_per_execution": 2},
}
# What others show, too; in make test-all.
_SLOW = (
    "average of weights",
    "input of unknown length",
    "two steps per execution",
    "loss_scale_factor",
    "accumulation",
)
PLAIN = {
    "global_clipnorm": ({"optimizer": "global_clipnorm"}, "global_clipnorm needs all gradients"),
    "loss scaling": ({"optimizer": "loss scaling"}, "LossScaleOptimizer decides by all"),
    "loss_scale_factor": (
        {"optimizer": "loss_scale_factor", "sparse": False},  # with both, Keras itself fails
        "loss_scale_factor changes",
    ),
    "accumulation": ({"optimizer": "accumulation"}, "gradient_accumulation_steps leaves out"),
    "synchronized": ({"extra": "synchronized"}, "exchanges statistics in its forward pass"),
    "eager": ({"run_eagerly": True}, "steps run eagerly"),
}

LOOKS = {
    "plain": {"cross_step": False},
    "not said": {"cross_step": True, "says_so": False},
    "said": {"cross_step": True, "says_so": True},
}


def _call(function, **arguments):
    return workers.scenario(function, **arguments) if arguments else function


def _train(**arguments):
    return _call("train", **arguments)


def _same(one, other):
    """Whether two structures of arrays have the same bits."""
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    one, other = np.asarray(one), np.asarray(other)
    return (
        one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    )


@pytest.fixture(scope="module")
def trained(request):
    arguments = {**ACROSS, **{name: arguments for name, (arguments, _) in PLAIN.items()}}
    tests = (
        test_bits_are_those_of_plain_steps,
        test_what_cannot_go_across_steps_says_so_and_is_plain,
    )
    cases = [arguments[name] for name in asked_values(request, "case", *tests)]
    scenarios = [_train(**case, cross_step=on) for case in cases for on in (False, True)]
    return workers.run(PROGRAM, scenarios, 2)


@pytest.mark.parametrize("case", some_slow(ACROSS, _SLOW))
def test_bits_are_those_of_plain_steps(case, trained):
    plain = trained[_train(**ACROSS[case], cross_step=False)]
    across = trained[_train(**ACROSS[case], cross_step=True)]
    steps = ACROSS[case].get("steps_per_execution", 1)
    executions = 2 * -(-(STEPS // 2) // steps)
    for expected, result in zip(plain, across, strict=True):
        assert not result["warnings"]
        assert len(result["losses"]) >= executions
        assert result["losses"] == expected["losses"]
        assert result["epochs"] == expected["epochs"]
        before = [done - 1 for done in expected["done"]]
        if "source" in ACROSS[case]:
            # Where an input of unknown length ends, Keras's plain step counts one more.
            before = list(range(STEPS))
            del expected["weights"][result["iterations"]], result["weights"][result["iterations"]]
        assert _same(result["weights"], expected["weights"])
        # Each batch was followed by the updates of those before only.
        assert result["done"] == before
    assert len({loss for loss in across[0]["losses"]}) > executions / 2
    learned = [v for v in across[0]["weights"] if v.ndim > 0 and v.dtype.kind == "f"]
    assert all(np.ptp(v) > 0 for v in learned if v.size > 1)


@pytest.mark.parametrize("case", some_slow(PLAIN, _SLOW))
def test_what_cannot_go_across_steps_says_so_and_is_plain(case, trained):
    arguments, reason = PLAIN[case]
    plain = trained[_train(**arguments, cross_step=False)]
    across = trained[_train(**arguments, cross_step=True)]
    for expected, result in zip(plain, across, strict=True):
        assert not expected["warnings"]
        (warning,) = result["warnings"]
        assert reason in warning and "so that plain steps are used" in warning
        assert "\n" not in warning and ". " not in warning
        assert result["losses"] == expected["losses"]
        assert result["done"] == expected["done"]
        assert _same(result["weights"], expected["weights"])


@pytest.fixture(scope="module")
def others():
    scenarios = [
        *(_call(name, cross_step=on) for name in ("custom_step", "input_fails") for on in (0, 1)),
        *(_call("look", **arguments) for arguments in LOOKS.values()),
        "wrong_order",
        _call("overtake", steps=OVERTAKEN),
        "step_fails",  # the last
    ]
    return workers.run(PROGRAM, scenarios, 2)


def test_a_train_step_of_the_users_own_is_plain(others):
    plain, across = (
        others[_call("custom_step", cross_step=0)],
        others['custom_step={"cross_step": 1}'],
    )
    for expected, result in zip(plain, across, strict=True):
        (warning,) = result["warnings"]
        assert "CustomStep has a train_step of its own" in warning
        assert _same(result["weights"], expected["weights"])


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("says_so", ["not said", "said"])
def test_who_looks_at_the_weights_sees_them(how, says_so, others):
    """A callback sees what plain steps would show it; also one that has denied that it looks."""
    plain, across = (others[_call("look", **LOOKS[each])] for each in ("plain", says_so))
    for expected, result in zip(plain, across, strict=True):
        assert _same(result["found"][how], expected["found"][how])


@pytest.mark.parametrize("says_so, behind", [("not said", 1), ("said", 0)])
def test_looking_changes_nothing(says_so, behind, others):
    plain, across = (others[_call("look", **LOOKS[each])] for each in ("plain", says_so))
    for expected, result in zip(plain, across, strict=True):
        assert set(result["found"]) == set(WAYS)
        assert _same(result["weights"], expected["weights"])
        # Else the tests above would prove nothing.
        assert result["done"] == [done - behind for done in expected["done"]]


def test_an_input_that_fails_loses_no_update(others):
    plain, across = (others[_call("input_fails", cross_step=on)] for on in (0, 1))
    for expected, result in zip(plain, across, strict=True):
        assert "no more data" in result["error"]
        assert not result["warnings"]
        assert _same(result["weights"], expected["weights"])


def test_a_step_that_fails_says_that_updates_are_lost(others):
    errors = [result["error"] for result in others["step_fails"]]
    assert any("enough" in error for error in errors)
    # A worker whose step has not come so far hears that the other one is lost.
    assert all("enough" in error or "has left the job" in error for error in errors), errors
    for result in others["step_fails"]:
        (warning,) = result["warnings"]
        assert "are lost, or done in part, on this worker" in warning


def test_operations_in_a_wrong_order_say_so(others):
    for result in others["wrong_order"]:
        twice, again, forgotten, type_error = result["messages"]
        assert "'order' was started before and nobody has waited for it" in twice
        assert "nobody has started the exchange 'order'" in again
        assert "nobody has started the exchange 'order'" in forgotten
        assert "'types' was started with float, not with int32" in type_error
        assert result["results"] == [[2.0] * 3, [6.0] * 3]


def test_a_step_begins_before_the_exchanges_of_the_last_one_end(others):
    """Worker 0 computes the first layer while worker 1 still holds back the last one's gradient."""
    result = others[_call("overtake", steps=OVERTAKEN)][0]
    assert len(result["passed"]) == OVERTAKEN - 1 and len(result["summed"]) == OVERTAKEN
    for passed, summed in zip(result["passed"], result["summed"]):
        assert passed < summed


def test_with_plain_steps_that_would_hang():
    scenario = _call("overtake", steps=OVERTAKEN, cross_step=False)
    group = workers.run(PROGRAM, [scenario], 2, BYTEPS_OPERATION_TIMEOUT="8")
    failures = group.failures(scenario)
    assert any("passed" in failure.message for failure in failures), failures


def test_a_lost_worker_ends_the_training_with_an_error_that_names_it():
    group = workers.run(PROGRAM, ["worker_is_lost"], 2, timeout=200)
    result = group.of_worker(0, "worker_is_lost")
    assert "UnavailableError" in result["error"]
    # Its process has a server, too, whose connection may be the first to close.
    assert re.search(r"(worker|server) 1\b.* (is lost|ended without a goodbye)", result["error"])
    (warning,) = result["warnings"]
    assert "are lost, or done in part, on this worker" in warning


def test_one_worker_trains_with_plain_steps():
    scenarios = [_train(cross_step=on) for on in (False, True)]
    group = workers.run(PROGRAM, scenarios, 0)
    (plain,), (across,) = (group[scenario] for scenario in scenarios)
    assert not across["warnings"]
    assert across["losses"] == plain["losses"] and across["done"] == plain["done"]
    assert _same(across["weights"], plain["weights"])
