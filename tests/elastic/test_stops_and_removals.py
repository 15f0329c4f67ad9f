"""Workers of trainings are stopped and removed: the same happens on TensorFlow and on JAX."""

import functools

import numpy as np
import pytest

from tests.elastic import disturbing, worker_kills
from tests.elastic.progress import BATCHES

EPOCHS = 3
_JAX = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
# A worker that is stopped is given up soon.
_ENVIRONMENT = {
    "BYTEPS_HEARTBEAT_INTERVAL": "0.5",
    "BYTEPS_HEARTBEAT_TIMEOUT": "5",
    "BYTEPS_ELASTIC_TIMEOUT": "300",  # workers that start are waited for on a busy machine, too
}
# Framework and training -> how far weights may be from one worker's. Keras's mean of a loss is one
# of float32. On TensorFlow losses are compared.
TOLERANCES = {
    ("tensorflow", "fit"): None,
    ("tensorflow", "loop"): None,
    ("jax", "fit"): 1e-6,
    ("jax", "distributed"): 1e-6,
    ("jax", "batches"): 1e-6,
    ("jax", "loop"): 1e-12,
}
_GENERATORS = [
    ("tensorflow", "generator"),
    ("jax", "fit generator"),
    ("jax", "distributed generator"),
]
_QUICK = [("jax", "loop"), ("jax", "fit generator")]

pytestmark = pytest.mark.time_limit(600)


def _train(case, disturb=None, **options):
    framework, how = case
    if framework == "jax":
        pytest.importorskip("jax", reason="Keras on JAX needs jax")
        options |= {"program": "jax_training"}
    environment = {**_ENVIRONMENT, **(_JAX if framework == "jax" else {})}
    return worker_kills.train(how, EPOCHS, environment=environment, disturb=disturb, **options)


@functools.cache
def _undisturbed(case):
    outcome = _train(case, workers=1, limit=300)
    assert outcome.code == 0, outcome.output
    return outcome.result


def _cases(cases):
    return [
        pytest.param(
            case,
            id="-".join(case),
            marks=pytest.mark.extended if case in _QUICK else pytest.mark.slow,
        )
        for case in cases
    ]


def _assert_as_undisturbed(outcome, case, times):
    undisturbed = _undisturbed(case)
    assert worker_kills.faults(outcome, undisturbed, times, EPOCHS) == [], outcome.output
    if case[0] == "jax":
        tolerance = TOLERANCES.get(case, 1e-6)
        for found, expected in zip(outcome.result["weights"], undisturbed["weights"], strict=True):
            np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
        assert outcome.result["digests"] == 1


@pytest.mark.parametrize("case", _cases(TOLERANCES))
def test_a_stopped_worker_is_given_up_and_comes_back(case):
    """Also worker 0, with whose state the others would begin anew."""
    stop = functools.partial(disturbing.Stopper, moments=[12, 35], numbers=[2, 0], size=3)
    outcome = _train(case, stop)
    _assert_as_undisturbed(outcome, case, 2)
    # Each worker goes back once for each stop: those that went on, and who woke up.
    assert outcome.output.count("going back to the last commit") == 6, outcome.output
    assert outcome.result["size"] == 3


@pytest.mark.parametrize("case", _cases(TOLERANCES))
def test_removed_workers_leave_at_a_commit(case):
    """One of three leaves, comes, and both others leave: nothing is lost, and nobody goes back."""
    hosts = ["localhost:2 127.0.0.1:1", "localhost:2", "localhost:2 127.0.0.1:1", "127.0.0.1:1"]
    remove = functools.partial(disturbing.Remover, moments=[12, 24, 36], hosts=hosts)
    outcome = _train(case, remove)
    _assert_as_undisturbed(outcome, case, 3)
    assert "going back to the last commit" not in outcome.output
    assert "failed" not in outcome.output and "Traceback" not in outcome.output
    assert outcome.result["size"] == 1


@pytest.mark.parametrize("case", _cases(_GENERATORS))
def test_an_input_of_unknown_length_ends_where_workers_change(case):
    """Nothing is left of the epoch, which ends without a batch, also on a worker that is new."""
    hosts = ["localhost:2", "localhost:1", "localhost:1 127.0.0.1:1"]
    moments = [BATCHES, 2 * BATCHES]
    remove = functools.partial(disturbing.Remover, moments=moments, hosts=hosts, slack=0)
    outcome = _train(case, remove, workers=2)
    _assert_as_undisturbed(outcome, case, 2)
    assert "going back to the last commit" not in outcome.output
    assert outcome.result["size"] == 2
