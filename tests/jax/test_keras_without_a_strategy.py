"""`DistributedOptimizer`, the callbacks and the rest of `tf_byteps.keras`, with Keras on JAX."""

import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from tests import workers
from tests.cluster import clean_environment
from tests.jax.choosing import ENVIRONMENT

pytest.importorskip("jax", reason="Keras on JAX needs jax")

_HERE = pathlib.Path(__file__).parent
PROGRAM = _HERE / "distributed_programs.py"
_ENVIRONMENT = {**ENVIRONMENT, "BYTEPS_CHECK_WEIGHTS": "error"}
TRAININGS = ["sgd", "global_clipnorm", "accumulation"]
_EXTENDED = [
    "adam",
    "loss scale",
    "clipnorm",
    "clipvalue",
    "moving averages",
    "loss scale, accumulation",
    "eagerly",
    "eagerly, accumulation",
    "not compiled",
    "steps per execution",
    "predivided",
    "sums",
    "dense",
]
_WITH_THREE = "accumulation"
_OTHERS = ["values", "errors", "learning_rates", "by_hand", "mixed_precision", "compressed"]
_OTHERS += ["with_the_strategy", "left", "told_to_end"]

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(600)


def training(name):
    return f"training={json.dumps({'name': name})}"


def _run(scenarios, count):
    return workers.run(PROGRAM, scenarios, count, **_ENVIRONMENT)


@pytest.fixture(scope="module")
def one():
    return _run(map(training, TRAININGS), 0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return f"saved={json.dumps({'folder': str(tmp_path_factory.mktemp('saved'))})}"


@pytest.fixture(scope="module")
def two(saved):
    return _run([*map(training, TRAININGS), *_OTHERS, saved], 2)


@pytest.fixture(scope="module")
def extended():
    scenarios = [training(name) for name in _EXTENDED]
    return _run(scenarios, 0), _run(scenarios, 2)


def assert_as_in_one_process(results, expected):
    """But for the last bits; all workers have the same."""
    for key, values in expected.items():
        for result in results:
            _assert_close(result[key], values)
    assert len(results[0]["weights"]) == 4
    _assert_same_bits([result["weights"] for result in results])
    _assert_same_bits([result.get("optimizer", []) for result in results])


def _assert_close(found, expected):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = list(found.values()), list(expected.values())
    assert len(found) == len(expected)
    for each, other in zip(found, expected):
        np.testing.assert_allclose(each, other, rtol=1e-12, atol=1e-12)


def _assert_same_bits(of_workers):
    first, *others = [[np.asarray(each).tobytes() for each in values] for values in of_workers]
    assert all(other == first for other in others)


@pytest.mark.parametrize("name", TRAININGS)
def test_two_workers_are_as_one_process(one, two, name):
    assert_as_in_one_process(two[training(name)], one[training(name)][0])


@pytest.mark.extended
@pytest.mark.parametrize("name", _EXTENDED)
def test_further_trainings_of_two_workers_are_as_one_process(extended, name):
    alone, two = extended
    assert_as_in_one_process(two[training(name)], alone[training(name)][0])


@pytest.mark.extended
def test_three_workers_are_as_one_process(one):
    three = _run([training(_WITH_THREE)], 3)
    assert_as_in_one_process(three[training(_WITH_THREE)], one[training(_WITH_THREE)][0])


def test_values(two):
    for rank, found in enumerate(two["values"]):
        assert found["average"].dtype == np.float64 and found["average"].tolist() == [1.5, 3]
        assert found["sum"].tolist() == [3, 6] and found["largest"] == 4
        assert found["halved"].tolist() == found["float16"].tolist() == [1.5, 3]
        assert found["integers"].tolist() == [2**41 + 1]
        assert found["broadcast"].tolist() == [2, 4]
        assert found["boolean"].dtype == bool and found["boolean"].tolist() == [True]
        assert found["gathered"].tolist() == [1, 2, 4]
        assert found["scattered"].tolist() == [[0, 2], [4]][rank]
        assert found["object"]["rank"] == 1 and found["object"]["array"].tolist() == [2, 4]
        assert found["objects"] == [0, 1]
        assert [each.tolist() for each in found["variables"]] == [[2, 4], 1]


def test_errors_say_what_to_do(two):
    for found in two["errors"]:
        for name, begin in {
            "twice": "ValueError: the optimizer 'sgd",
            "no optimizer": "TypeError: optimizer must be a Keras 3 optimizer, got 'sgd'; in a",
            "op": "ValueError: gradients are reduced with 'average' or 'sum', not with 'max'",
            "rows": "NotImplementedError: merge_repeated_rows is False, which DistributedOptimizer",
            "set": "TypeError: process_set must be a tf_byteps.ProcessSet, got 1",
            "two steps": "NotImplementedError: compression 'powersgd' exchanges an array in two",
            "global": "RuntimeError: Keras keeps no list of all variables: call tf_byteps.keras.",
            "array": "TypeError: broadcast_variables takes keras.Variable, got <class 'numpy.",
            "root": "ValueError: root_rank must be a rank from 0 to 1, got 7",
            "unlike": "ValueError: the workers differ in the variables to broadcast: worker 1 ",
            "scalar": "ValueError: a scalar has no axis 0 to gather along",
            "text": "TypeError: broadcast cannot exchange an array of dtype <U1: give it numbers",
            "logs": "ValueError: the logs of worker 1 are ['loss', 'val_loss'], but those of ",
        }.items():
            assert found[name].startswith(begin), found[name]
        for name in ("other weights", "one batch"):
            assert found[name].startswith("BytePSError: before the first step, the value of the ")
            assert "and of 1 more, on worker 1 is not that of worker 0: broadcast" in found[name]


def test_names_of_tensorflow_say_so_when_they_are_used(two):
    for found in two["errors"]:
        for key, name in {
            "layers": "layers",
            "optimizers": "optimizers",
            "outer": "callbacks.OuterSyncCallback",
        }.items():
            begin = f"NotImplementedError: tf_byteps.keras.{name} does not work with KERAS_BACKEND="
            assert found[key].startswith(begin), found[key]


def test_learning_rates(two):
    for rates, logged, velocity in two["learning_rates"]:
        np.testing.assert_allclose(rates, [0.5, 0.6, 0.7, 0.8, 0.08, 0.08])
        np.testing.assert_allclose(logged, [0.6, 0.8, 0.08])
        assert velocity == pytest.approx(1.0)  # halved with the rate


def test_local_and_overwritten_variables_and_accumulation(two):
    """A local gradient is divided by the number of workers; of an overwritten one the largest is
    taken; accumulated ones are pushed once for each update, in which backward passes add up."""
    for rank, found in enumerate(two["by_hand"]):
        assert found["variables"] == [-1, [0.5, -0.5][rank], 3]
        assert found["pushed"][:3] == found["pushed"][4:7] == [0, 0, 0]
        assert found["pushed"][3] == found["pushed"][7] >= 8 * 50_000
        assert found["weight"] == -16


def test_all_workers_skip_the_same_steps(two):
    first, second = two["mixed_precision"]
    assert first["kinds"] == ["LossScaleOptimizer", True]
    assert first["scale"] == second["scale"] < 2**15
    _assert_same_bits([first["weights"], second["weights"]])
    assert all(np.isfinite(weight).all() for weight in first["weights"])


def test_compressed_gradients_lead_near_to_one_process(one, two):
    first, second = two["compressed"]
    _assert_same_bits([first["weights"], second["weights"]])
    found = [weight for weight in first["weights"]]
    for weight, expected in zip(found, one[training("sgd")][0]["weights"]):
        np.testing.assert_allclose(weight, expected, atol=0.05)
        assert not np.array_equal(weight, expected)


def test_models_are_saved_and_trained_on(two, saved):
    for found in two[saved]:
        assert found["plain"] == [False, False] and found["clipnorm"] == 1 and found["steps"] == 10
        _assert_same_bits([found["loaded"], found["gone on"]])


def test_the_strategy_reduces_its_own(two):
    for found in two["with_the_strategy"]:
        _assert_same_bits([found["plain"], found["distributed"], found["trained"]])
        assert found["refused"].startswith("ValueError: within BytePSStrategy the strategy reduces")


def test_asynchronous_training_is_refused():
    group = workers.run(PROGRAM, ["asynchronous"], 0, BYTEPS_ENABLE_ASYNC="1", **ENVIRONMENT)
    (error,) = group["asynchronous"]
    assert error.startswith("BytePSError: BYTEPS_ENABLE_ASYNC does not work with KERAS_BACKEND=jax")


def test_all_leave_a_training_and_meet_again(two):
    first, second = two["left"]
    assert second["error"] == "OSError: the disk is full"
    assert first["error"].startswith("ExchangeError: tensor ")
    assert "its fit failed with OSError: the disk is full" in first["error"]
    _assert_same_bits([first["weights"], second["weights"]])


def test_all_leave_if_one_is_told_to_end(two):
    first, second = two["told_to_end"]
    assert first["end"] == second["end"] == [15, [0, 1]]
    _assert_same_bits([first["weights"], second["weights"]])


def test_a_program_of_horovod(tmp_path):
    program = (_HERE / "horovod_program.py").read_text()
    before = "import horovod.keras as hvd\n"
    assert program.count("horovod.keras") == 1 and before in program
    (tmp_path / "train.py").write_text(program.replace(before, "import tf_byteps.keras as hvd\n"))
    launch = [sys.executable, "-m", "tf_byteps.launch", "-np", "2", "--servers", "1"]
    result = subprocess.run(
        [*launch, sys.executable, "train.py", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=400,
        cwd=tmp_path,
        env=clean_environment(**_ENVIRONMENT),
    )
    assert result.returncode == 0, result.stdout + result.stderr
    found = re.findall(r"worker \d: accuracy ([\d.]+), (\d) have these weights", result.stdout)
    assert len(found) == 2 and found[0] == found[1] and found[0][1] == "2"
    assert float(found[0][0]) > 0.9
    assert result.stdout.count("Epoch 2: the warm-up ends with learning rate 0.02") == 1
    assert "loaded after 40 steps" in result.stdout
