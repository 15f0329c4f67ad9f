"""However a loss is written, three workers train as one process: with uneven and empty pieces
(protocol rule 35)."""

import json
import os

import numpy as np
import pytest
from loss_programs import STEPS
from selection import asked_values, some_slow

from tests import workers

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(620)

PROGRAM = os.path.join(os.path.dirname(__file__), "loss_programs.py")

CASES = {
    **{f"own step: {step}": {"step": step} for step in STEPS},
    "own step, eager": {"step": "mean", "run_eagerly": True},
    "mean": {},
    "scalar": {"loss": "scalar"},
    "compute_average_loss": {"loss": "average"},
    "sum": {"loss": "sum"},
    "masked": {"masked": True},
    "masked sum": {"masked": True, "loss": "sum"},
    "weighted": {"loss": "weighted", "sample_weights": True},
    "masked and weighted": {"masked": True, "loss": "weighted"},
    "accumulating": {"accumulation_steps": 2},
    "accumulating, normalized": {"accumulation_steps": 2, "normalized": True},
    "loss scale, accumulating": {"accumulation_steps": 2, "loss_scale": True, "normalized": True},
    "steps per execution": {"loss": "scalar", "steps_per_execution": 2},
}
# What others show, too; in make test-all.
_SLOW = (
    "own step: function",
    "own step: compute_average_loss, global_batch_size",
    "own step, eager",
    "compute_average_loss",
    "masked sum",
    "weighted",
    "accumulating",
    "steps per execution",
)
# One process that asks for the number of replicas has one, and its logs are those of a replica.
_LOGS_OF_A_REPLICA = (
    "own step: compute_average_loss",
    "own step: compute_average_loss, global_batch_size",
    "own step: divided by num_replicas_in_sync",
    "own step: scaled after compute_loss",
)


def _scenario(**arguments):
    return f"train={json.dumps(arguments)}"


@pytest.fixture(scope="module")
def names(request):
    return asked_values(request, "case", test_trains_as_one_process)


@pytest.fixture(scope="module")
def reference(names):
    scenarios = [_scenario(plain=True, **CASES[name]) for name in names]
    group = workers.run(PROGRAM, scenarios, 0)
    return {name: group[scenario][0] for name, scenario in zip(names, scenarios, strict=True)}


@pytest.fixture(scope="module")
def group(names):
    scenarios = [_scenario(**CASES[name]) for name in names]
    return workers.run(PROGRAM, [*scenarios, "mixed_step"], 3)


@pytest.mark.parametrize("case", some_slow(CASES, _SLOW))
def test_trains_as_one_process(case, group, reference):
    for result in group[_scenario(**CASES[case])]:
        assert result.keys() == reference[case].keys()
        for key, expected in reference[case].items():
            if key == "logs: seen" and (case in _LOGS_OF_A_REPLICA):
                continue
            # Keras computes losses in float32 here and there.
            tolerance = 1e-6 if key.startswith(("logs", "evaluation")) else 1e-9
            np.testing.assert_allclose(result[key], expected, tolerance, 1e-12, err_msg=key)


def test_step_that_scales_some_losses_is_refused(group):
    for failure in group.failures("mixed_step"):
        assert failure.kind == "ValueError"
        assert "MixedStep.train_step scales a loss by the number of replicas" in failure.message
        assert "loss_programs.py" in failure.message
        assert "as means over the rows" in failure.message
