"""One of 3 workers leaves `fit` by an exception that its program catches."""

import os

import pytest
import workers

PROGRAM = os.path.join(os.path.dirname(__file__), "leaving_programs.py")
# How often the others wait for who has left: at a step, and with the strategy where the last epoch
# ends, too.
SCENARIOS = {
    "left_by_an_exception": 2,
    'left_by_an_exception={"distributed_optimizer": true}': 1,
}


@pytest.fixture(scope="module")
def group():
    return workers.run(PROGRAM, [*SCENARIOS], 3)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_others_are_told_and_all_train_on(group, scenario):
    first, *others = group[scenario]
    assert first["said"] == ["OSError: no space left"] * 2
    for other in others:
        assert len(other["said"]) == SCENARIOS[scenario]
        for message in other["said"]:
            assert message.startswith('CancelledError: tensor "')
            assert "worker 0 has given it up: it has left fit by OSError: no space left" in message
        assert other["weights"] == first["weights"]
        assert other["total"] == first["total"] == 3.0
