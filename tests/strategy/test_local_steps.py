"""`BytePSStrategy(local_steps=)`: exact where it must be, the same on all workers, few bytes."""

import os

import numpy as np
import pytest

from tests import workers

PROGRAM = os.path.join(os.path.dirname(__file__), "local_steps_programs.py")

TRAININGS = {
    "average": {"local_steps": 3},
    "diloco": {"local_steps": 2, "outer": "diloco"},
    "fragments, delay": {"local_steps": 4, "outer": "diloco", "fragments": 2, "delay": 2},
    "accumulating": {"local_steps": 2, "optimizer": "accumulating"},
    "scaled": {"local_steps": 2, "optimizer": "scaled"},
    "compiled": {"local_steps": 2, "outer": "diloco", "options": {"jit_compile": True}},
    "several": {"local_steps": 2, "outer": "diloco", "options": {"steps_per_execution": 2}},
    "eager": {"local_steps": 2, "outer": "diloco", "options": {"run_eagerly": True}},
    "int8": {"local_steps": 2, "compression": "int8"},
    "evaluates": {"local_steps": 3, "evaluates": True},
}
BYTES = {"synchronous": {}, "local": {"local_steps": 8}}


_scenario = workers.scenario


EACH_STEP = _scenario("each_step")
WARM_UP = _scenario("each_step", warmup_steps=7)


@pytest.fixture(scope="module")
def group():
    return workers.run(
        PROGRAM,
        [
            *(_scenario("bytes_sent", **settings) for settings in BYTES.values()),
            EACH_STEP,
            WARM_UP,
            *(_scenario("trains", **settings) for settings in TRAININGS.values()),
            "goes_on_after_an_exception",
            "steps_of_the_programs_own",
            "refusals",
        ],
        2,
    )


@pytest.fixture(scope="module")
def alone():
    return workers.run(PROGRAM, ["plain", "lookahead", _scenario("lookahead", plain=True)], 0)


@pytest.mark.parametrize("scenario", [EACH_STEP, WARM_UP])
def test_rounds_after_each_step_are_synchronous_training(group, alone, scenario):
    ((expected, losses),) = alone["plain"]
    for weights, history in group[scenario]:
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-12)
        for name, values in history.items():
            np.testing.assert_allclose(values, losses[name], rtol=1e-9)


def test_one_worker_alone_is_lookahead(alone):
    (found,), (expected,) = alone["lookahead"], alone[_scenario("lookahead", plain=True)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", TRAININGS)
def test_workers_agree_where_they_come_together(group, case):
    first, second = group[_scenario("trains", **TRAININGS[case])]
    for (weights, own, losses, _), (its_weights, its_own, its_losses, _) in zip(
        first[0], second[0], strict=True
    ):
        assert weights == its_weights and losses == its_losses
        assert own != its_own  # moments are each worker's
    assert first[1] == second[1] and first[2] and second[2]
    assert first[0][1][2][-1] < first[0][0][2][0]  # it learns


def test_bytes_are_those_of_the_weights_by_local_steps(group):
    synchronous, local = (
        group[_scenario("bytes_sent", **settings)][0] for settings in BYTES.values()
    )
    weights = local[1]
    assert 32 * weights < synchronous[0] < 1.05 * 32 * weights
    assert 4 * weights < local[0] < 1.05 * 4 * weights


def test_it_goes_on_after_an_exception(group):
    for said, losses, weights in group["goes_on_after_an_exception"]:
        assert said == "'of the program'" and losses[-1] < losses[0]
        assert weights == group["goes_on_after_an_exception"][0][2]


def test_train_on_batch_makes_local_steps(group):
    (after, own, seen), (its_after, its_own, its_seen) = group["steps_of_the_programs_own"]
    assert after == its_after
    assert own != its_own
    assert seen == its_seen


def test_refusals_name_the_cure(group):
    for said in group["refusals"]:
        assert "local_steps is 4, and cross_step is set" in said[0]
        assert "local_steps is 4, and backup_workers is set" in said[1]
        assert "fragments is 2" in said[2] and "local_steps is not set" in said[2]
        assert "outer is 'diloco'" in said[3] and "local_steps is not set" in said[3]
        assert "use tf_byteps.OuterSync" in said[4] and len(said) == 5
