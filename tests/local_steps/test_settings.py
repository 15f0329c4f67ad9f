"""What a training with local steps may be asked for, and its defaults."""

import pytest

from tf_byteps.local_steps.settings import LocalSteps


def test_defaults_of_presets():
    average, diloco = LocalSteps(8), LocalSteps(8, "diloco")
    assert (average.learning_rate, average.has_momentum, average.own_share) == (1.0, False, 0.0)
    assert diloco.learning_rate == 0.7 and diloco.has_momentum
    assert LocalSteps(8, delay=2).own_share == 0.5
    assert LocalSteps(8, delay=2, mix=0).own_share == 0.0


def test_momentum_rises_in_long_trainings_only():
    momenta = [LocalSteps(8, "diloco").momentum(rounds) for rounds in range(120)]
    assert momenta[:51] == [0.6] * 51 and momenta == sorted(momenta)
    assert momenta[75] == pytest.approx(0.75) and momenta[100:] == pytest.approx([0.9] * 20)
    assert LocalSteps(8, "diloco", outer_momentum=0.3).momentum(0) == 0.3
    assert not LocalSteps(8, "diloco", outer_momentum=0).has_momentum


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"steps": 0}, ValueError, "local_steps must be 1 or more, got 0"),
        ({"steps": 2.5}, TypeError, "local_steps must be a whole number, got 2.5"),
        ({"steps": True}, TypeError, "local_steps must be a whole number, got True"),
        (
            {"steps": 8, "outer": "adam"},
            ValueError,
            "outer must be 'average' or 'diloco', got 'adam'",
        ),
        ({"steps": 8, "fragments": 0}, ValueError, "fragments must be 1 or more"),
        ({"steps": 2, "fragments": 3}, ValueError, "fragments is 3 and local_steps is 2"),
        ({"steps": 4, "delay": 4}, ValueError, "delay is 4 and local_steps is 4"),
        ({"steps": 4, "delay": -1}, ValueError, "delay must be 0 or more"),
        ({"steps": 4, "mix": 1}, ValueError, r"mix must be in \[0, 1\), got 1"),
        ({"steps": 4, "outer_momentum": 1.0}, ValueError, "outer_momentum must be in"),
        ({"steps": 4, "outer_learning_rate": -1}, ValueError, "outer_learning_rate must be 0 or"),
        ({"steps": 4, "outer_learning_rate": "1"}, TypeError, "must be a number, got '1'"),
        ({"steps": 4, "warmup_steps": -1}, ValueError, "warmup_steps must be 0 or more"),
    ],
)
def test_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        LocalSteps(**arguments)
