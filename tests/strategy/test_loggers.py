"""Callbacks that log a training, and subclasses of them: only worker 0's write files."""

import pathlib

import numpy as np
import pytest

from tests import workers

_PROGRAM = pathlib.Path(__file__).with_name("loggers_programs.py")
_EPOCHS = ["epoch_loss", "epoch_own", "by_hand"]
_BATCHES = 6

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(620)


class Group:
    def __init__(self, folder, names, **environment):
        self._names = {
            name: workers.scenario(name, **({"folder": str(folder)} if name != "methods" else {}))
            for name in names
        }
        self._group = workers.run(_PROGRAM, list(self._names.values()), 2, **environment)

    def __getitem__(self, name):
        return self._group[self._names[name]]


@pytest.fixture(
    scope="module", params=["tensorflow", pytest.param("jax", marks=pytest.mark.extended)]
)
def group(request, tmp_path_factory):
    names = ["everything", "subclass", "csv_logger", "own_file", "alone_afterwards", "methods"]
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "tensorflow":
        return request.param, Group(folder, ["tables", *names])
    pytest.importorskip("jax", reason="Keras on JAX needs jax")
    return request.param, Group(folder, names, KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")


def test_a_tensorboard_with_all_that_it_can_write(group):
    backend, results = group
    first, second = results["everything"]
    expected = ["events", "projector_config", "weights.h5"]
    if backend == "tensorflow":  # on JAX Keras profiles with Python 3.12 and later
        expected.append("xplane.pb")
    assert set(expected) <= set(first["files"]), first["files"]
    assert second["files"] == []
    for mine, theirs in zip(first["weights"], second["weights"], strict=True):
        np.testing.assert_array_equal(mine, theirs)
    # On JAX a GPU's memory would be TensorFlow's.
    assert first["uses TensorFlow"] and not second["uses TensorFlow"]


def test_a_tensorboard_of_tables(group):
    if group[0] == "jax":
        pytest.skip("tables need TensorFlow")
    first, second = group[1]["tables"]
    assert first == ["events", "projector_config", "weights.h5"]
    assert second == []


def test_a_subclass_of_tensorboard(group):
    first, second = group[1]["subclass"]
    expected = ["set_model", "on_train_begin"]
    expected += (["on_train_batch_end"] * (_BATCHES // 2) + ["on_epoch_end"]) * 2
    assert first["called"] == second["called"] == expected
    assert set(_EPOCHS) < first["tags"]
    assert second["tags"] == set()
    assert first["own tags"] == second["own tags"] == {"of the program"}


def test_a_subclass_of_csv_logger(group):
    first, second = group[1]["csv_logger"]
    assert (
        first["called"]
        == second["called"]
        == (*("begin", "epoch", "epoch", "end"), *("begin", "epoch", "end"))
    )
    assert first["rows"] == [("0", "0"), ("1", "1"), ("2", "2")]
    assert second["rows"] == []


def test_the_same_callbacks_for_a_training_alone(group):
    first, second = group[1]["alone_afterwards"]
    assert first["together"] == ["events", "log.csv", "projector_config", "weights.h5"]
    assert second["together"] == []
    assert second["alone"] == first["together"]


def test_a_subclass_that_opens_its_file_writes_on_worker_0_only(group):
    first, second = group[1]["own_file"]
    assert first.count("\n") == 1 + 2  # a header and two epochs
    assert second == ""


def test_few_methods_are_replaced(group):
    for found in group[1]["methods"]:
        assert found == [
            "CSVLogger.on_epoch_end",
            "CSVLogger.on_train_begin",
            "TensorBoard._log_embeddings",
            "TensorBoard.set_model",
        ]
