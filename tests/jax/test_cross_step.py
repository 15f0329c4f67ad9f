"""Keras on JAX: training across steps gives what plain steps give, to the last bit, and nobody sees
weights that are behind."""

import pathlib

import numpy as np
import pytest

from tests import workers
from tests.selection import some_extended

pytest.importorskip("jax", reason="Keras on JAX needs jax")

PROGRAM = pathlib.Path(__file__).with_name("cross_step_programs.py")
_ENVIRONMENT = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
TRAININGS = {
    "scheduled": {"optimizer": "scheduled", "rows": 26, "evaluates": False},
    "momentum": {},
    "averaging": {"optimizer": "averaging"},
    "accumulating": {"optimizer": "accumulating"},
    "scaling": {"optimizer": "scaling"},
    "noisy": {"noisy": True},
    "a batch of one row": {"noisy": True, "rows": 37},
    "compressed": {"compression": "bf16"},
    "quantized": {"compression": "int8"},
    "signs with the rest kept": {"compression": "onebit"},
    "steps per execution": {"steps_per_execution": 3},
}
_EVERYDAY = ("scheduled",)

# Each test has processes of its own, which compile for half a minute of one core.
pytestmark = pytest.mark.time_limit(600)


def both(function, **options):
    """Without and with cross_step."""
    return [workers.scenario(function, across=across, **options) for across in (False, True)]


def _assert_same(found, expected):
    """Fails unless two structures of arrays and numbers have the same bits."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        _assert_same(sorted(found.items()), sorted(expected.items()))
    elif isinstance(expected, (list, tuple)):
        for each, other in zip(found, expected, strict=True):
            _assert_same(each, other)
    else:
        np.testing.assert_array_equal(found, expected)


def assert_same_trainings(trained, case):
    """Fails unless a training across steps gave what plain steps gave."""
    plain, across = (trained[name] for name in both("train", **TRAININGS[case]))
    for expected, result in zip(plain, across, strict=True):
        assert not result["warnings"]
        for what in ("losses", "history", "weights"):
            _assert_same(result[what], expected[what])
        # Each batch was followed by the updates of those before only.
        assert result["done"] == [done - 1 for done in expected["done"]]
        assert len(set(result["losses"])) == len(result["losses"])
        assert result["programs"] <= 4  # the first step of an epoch, others, and a shorter batch


def assert_lost_is_one_error(group):
    """Fails unless worker 0 got an error that names worker 1, and has its last weights."""
    assert group.of_worker(0, "lost") == {"lost": 1, "weights are kept": True}


def _run(*scenarios):
    return workers.run(PROGRAM, scenarios, 2, **_ENVIRONMENT)


@pytest.mark.parametrize(
    "case", some_extended(TRAININGS, [case for case in TRAININGS if case not in _EVERYDAY])
)
def test_bits_are_those_of_plain_steps(case):
    assert_same_trainings(_run(*both("train", **TRAININGS[case])), case)


@pytest.mark.extended
def test_who_looks_at_the_weights_sees_them():
    scenarios = both("look")
    looks = _run(*scenarios)
    plain, across = (looks[name] for name in scenarios)
    for expected, result in zip(plain, across, strict=True):
        assert len(result["found"]) == 10
        for way, found in expected["found"].items():
            _assert_same(result["found"][way], found)
        _assert_same(result["weights"], expected["weights"])


@pytest.mark.extended
def test_an_exception_between_steps_loses_nothing():
    scenarios = both("callback_fails")
    failing = _run(*scenarios)
    plain, across = (failing[name] for name in scenarios)
    for expected, result in zip(plain, across, strict=True):
        assert result["error"] == expected["error"] == "OSError: the disk is full"
        _assert_same(result["weights"], expected["weights"])


@pytest.mark.extended
def test_an_exception_on_one_worker_ends_all_trainings():
    first, second = _run("one_fails")["one_fails"]
    assert second["error"] == "OSError: the disk is full"
    assert first["error"].startswith("ExchangeError: tensor ")
    assert "its fit failed with OSError: the disk is full" in first["error"]
    assert first["again"] == second["again"] == "no error"
    _assert_same(first["weights"], second["weights"])


@pytest.mark.extended
def test_what_cannot_go_across_steps_says_so():
    for found in _run("plain_after_a_warning")["plain_after_a_warning"]:
        for name, reason in {"own": "train_step of its own", "eager": "not compiled"}.items():
            (warning,) = found[name]
            assert reason in warning and warning.endswith("so that plain steps are used")


@pytest.mark.extended
def test_a_layer_waits_for_its_own_update_alone():
    for found in _run("order")["order"]:
        products = [place for place, what in enumerate(found) if what == "product"]
        assert len(products) == 4
        for layer in range(1, 4):
            place = found.index(f"{layer}/kernel")
            assert products[layer - 1] < place < products[layer]


@pytest.mark.extended
def test_a_lost_worker():
    assert_lost_is_one_error(_run("lost"))
