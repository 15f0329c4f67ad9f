"""`Model.fit` of Keras on JAX, on two and three workers, against one process."""

import json
import pathlib

import numpy as np
import pytest

from tests import workers

pytest.importorskip("jax", reason="Keras on JAX needs jax")

_PROGRAM = pathlib.Path(__file__).with_name("keras_programs.py")
_ENVIRONMENT = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
# Equal to one process but for the last bits.
_EQUAL = ["arrays", "accumulation", "loss_scale", "inputs", "losses", "own_step", "by_hand"]
_STEPS = 'own_steps={"names": ["Clips", "ClipsOfKeras"]}'
_ALL_STEPS = "own_steps"
_EQUAL += [_STEPS, "own_optimizers", "generators", "at_once", "without_batches"]
_EQUAL_WITH_THREE = ["arrays", "losses", "by_hand"]
_OTHERS = ["normalization", "dropout", "stopping", "compression", "refusals", "left"]
_OTHERS += ["left_outside_fit", "random_states", "exchanged", "lengths"]
_OTHERS += ["compiled_at_once", "batches_of_datasets", "freed"]

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("keras on jax"))


def _files(folder):
    return f"files={json.dumps({'folder': folder})}"


@pytest.fixture(scope="module")
def one(folder):
    names = [*_EQUAL, "compression", "random_states", "stopping", "left", _files(folder)]
    return workers.run(_PROGRAM, names, 0, **_ENVIRONMENT)


@pytest.fixture(scope="module")
def two(folder):
    return workers.run(_PROGRAM, [*_EQUAL, *_OTHERS, _files(folder)], 2, **_ENVIRONMENT)


@pytest.fixture(scope="module")
def three():
    return workers.run(_PROGRAM, _EQUAL_WITH_THREE, 3, **_ENVIRONMENT)


def _assert_equal(found, expected, tolerance=1e-9):
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            _assert_equal(found[key], expected[key], tolerance)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for each, other in zip(found, expected):
            _assert_equal(each, other, tolerance)
    elif isinstance(expected, str):
        assert found == expected
    else:
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", _EQUAL)
def test_two_workers_are_as_one_process(one, two, name):
    for result in two[name]:
        _assert_equal(result, one[name][0])


@pytest.mark.long
@pytest.mark.parametrize("name", _EQUAL_WITH_THREE)
def test_three_workers_are_as_one_process(one, three, name):
    for result in three[name]:
        _assert_equal(result, one[name][0])


@pytest.mark.long
def test_steps_that_change_gradients_with_three_workers():
    """Among them one that clips the gradient of each row."""
    one, three = (workers.run(_PROGRAM, [_ALL_STEPS], count, **_ENVIRONMENT) for count in (0, 3))
    for result in three[_ALL_STEPS]:
        _assert_equal(result, one[_ALL_STEPS][0])
    assert "row by row" in three._logs[0] and "for_each_row" in three._logs[0]


def test_a_step_sends_its_gradients_once(two):
    """Those that it has changed go twice: nothing says whether they depend on its own rows."""
    for counts in two["exchanged"]:
        assert counts == {"Keras": 1, "Augments": 1, "Clips": 2}


def test_steps_that_run_at_once_compile_nothing_again(two):
    for first, second in two["compiled_at_once"]:
        assert first and not second


def test_batches_of_datasets_are_not_copied(two):
    for shared, writeable, of_sparse in two["batches_of_datasets"]:
        assert shared == [True] * 3
        assert writeable == [False] * 3
        assert of_sparse == "BCOO"  # as Keras has it


def test_weights_are_freed_with_their_model(two):
    for left in two["freed"]:
        assert left == [[], [], []]


def test_an_epoch_without_batches_ends_without_logs(two):
    """As Keras's do on TensorFlow."""
    for result in two["without_batches"]:
        validated = ["val_accuracy", "val_loss"]
        for name, keys in {"not built": [], "unknown": validated, "known": [], "steps": []}.items():
            assert result["found"][name] == [[0, 1], keys], name
        assert result["batches"] == 10


def test_moving_statistics_are_the_same_on_all_workers(two):
    first, second = two["normalization"]
    _assert_equal(second, first, 0)
    assert np.abs(first["moving"][0]).max() > 0


def test_workers_drop_other_units_with_the_same_seeds(two):
    first, second = two["dropout"]
    assert first["own"] != second["own"]
    _assert_equal(second["seeds"], first["seeds"], 0)
    _assert_equal(second["history"], first["history"], 0)
    assert first["history"]["loss"] == pytest.approx([np.mean(first["own"] + second["own"])])


def test_all_workers_stop_if_one_wants_to(one, two):
    for result in two["stopping"]:
        assert len(result["history"]["loss"]) == 2 and result["batches"] == 3
        _assert_equal(result, one["stopping"][0])


def test_worker_0_writes_files_and_output(one, two, folder):
    name = _files(folder)
    (alone,) = one[name]
    first, second = two[name]
    assert first["written"] == alone["written"] == ["backup", "best.keras", "log.csv"]
    assert second["written"] == [] and second["printed"] == ""
    assert first["printed"].count("Epoch ") == 1
    for result in (first, second):
        assert result["epochs"] == [1]  # the first one's weights came from worker 0's backup
        _assert_equal(result["history"], alone["history"])
        _assert_equal(result["weights"], alone["weights"])


def test_compressed_gradients_lead_near_to_one_process(one, two):
    first, second = two["compression"]
    _assert_equal(second["weights"], first["weights"], 0)
    _assert_equal(first["weights"], one["compression"][0]["weights"], 0.05)


def test_shuffles_are_worker_0s(one, two):
    for result in two["random_states"]:
        _assert_equal(result, one["random_states"][0])


def test_refusals(two):
    for result in two["refusals"]:
        errors = result["errors"]
        for name in ("local_steps", "staleness"):
            assert f"{name} is " in errors[name]
            assert "does not support with KERAS_BACKEND=jax" in errors[name]
        assert errors["x"] == "TypeError: BytePSStrategy has no argument 'x'"
        assert errors["cross_step"] == "TypeError: cross_step must be True or False, got 'yes'"
        assert "backup_workers is 1, and cross_step is set" in errors["backup"]
        assert "exchanges an array in two steps" in errors["compression"]
        assert "set_distribution has set a DataParallel" in errors["distribution"]
        assert "the first batch of an epoch on worker 1 is not worker 0's" in errors["data"]
        assert "must have the same number of rows" in errors["rows"]
    assert two["refusals"][0]["loss"] == two["refusals"][1]["loss"]


def test_data_of_unequal_lengths(two):
    first, second = two["lengths"]
    assert first == second
    begin = "ValueError: the workers' data differ in the length of an epoch: "
    for name, how in {
        "fit": "those of worker 0 end after 3 batches. ",
        "steps": "those of worker 1 end after 2 batches. ",
        "evaluate": "those of worker 0 end after 1 batches. ",
        "predict": "those of worker 1 end after 3 batches. ",
        "known": "worker 0 has 2 batches, worker 1 has 1. ",
        "arguments": "worker 0 has 1 steps, worker 1 has 2. ",
    }.items():
        assert first[name].startswith(begin + how), first[name]


def test_all_leave_a_training_and_meet_again(two):
    first, second = two["left"]
    assert second["error"] == "OSError: the disk is full"
    assert first["error"].startswith("ExchangeError: tensor ")
    assert "its fit failed with OSError: the disk is full" in first["error"]
    _assert_equal(second["weights"], first["weights"], 0)


def test_all_leave_an_evaluation_or_a_prediction_and_meet_again(two):
    first, second = two["left_outside_fit"]
    for call, reported in second.pop("reported").items():
        assert reported == "OSError: the disk is full"
        method = call.split()[0]
        assert f"its {method} failed with OSError: the disk is full" in first["reported"][call]
        assert first["reported"][call].startswith("ExchangeError: tensor ")
    for result in (first, second):
        _assert_equal(result["again"], result["results"], 0)
    _assert_equal(second["weights"], first["weights"], 0)


def test_a_worker_that_is_lost_before_an_evaluation_is_named():
    group = workers.run(_PROGRAM, ["lost_before_an_evaluation"], 2, timeout=300, **_ENVIRONMENT)
    message, lost = group.of_worker(0, "lost_before_an_evaluation")
    assert message.startswith('tensor "callbacks') and "worker 1" in message and lost == 1


def test_a_lost_worker_is_one_sentence_and_leaves_weights():
    group = workers.run(_PROGRAM, ["lost"], 2, timeout=300, **_ENVIRONMENT)
    found = group.of_worker(0, "lost")
    sentence = found.pop("error")
    assert sentence.startswith('tensor "gradient/') and sentence.count("\n") == 0
    assert "worker 1" in sentence and sentence.count("tensor") == 1
    assert found == {
        "code": "UNAVAILABLE",
        "is ours": True,
        "lost": 1,
        "cause": True,
        "weights are kept": True,
    }
    assert "Traceback" not in group._logs[0]
