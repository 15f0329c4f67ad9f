"""The rows of tests/conformance, with the same tolerances, and Keras on JAX."""

import numpy as np
import pytest

from tests import side_by_side
from tests.cluster import run_workers
from tests.conformance import running
from tests.conformance.sides import SINGLE, STRATEGY
from tests.jax import choosing
from tests.selection import asked

pytest.importorskip("jax", reason="Keras on JAX needs jax")

_GROUP_SECONDS = 1500

# In `make test`; the others are in make test-long.
_QUICK = ("early_stopping", "gradient_accumulation", "uneven_arrays")

_WITH_THREE_WORKERS = (
    "all_lengths_modulo_the_batch",
    "backup_and_restore",
    "clipnorm",
    "dense",
    "early_stopping",
    "epoch_and_validation_logs",
    "evaluate",
    "gradient_accumulation",
    "one_worker_stops_all_after_a_batch",
    "predictions_in_input_order",
    "uneven_arrays",
    "uneven_class_and_sample_weights",
)

_TENSORFLOWS = "is a program of TensorFlow's"
_OVERFLOWS = "overflows earlier with a large loss scale (docs/keras_on_jax.md)"
_REFUSED = "asks for what is refused on JAX"
# Name -> why the row is not run.
_WITHOUT = {
    "batch_normalization": "its reference is TensorFlow's",
    "custom_train_step": _TENSORFLOWS,
    "custom_train_step_scaled_by_hand": _TENSORFLOWS,
    "custom_train_step_with_compute_loss": _TENSORFLOWS,
    "custom_training_loop": _TENSORFLOWS,
    "each_worker_evaluates_its_share": _TENSORFLOWS,
    "embedding_adam": "its optimizer is TensorFlow's",
    "embedding_adam_as_dense": "its optimizer is TensorFlow's",
    "embedding_adam_not_merged": _REFUSED,
    "embedding_adam_unmerged": _REFUSED,
    "embedding_sgd_as_dense": _REFUSED,
    "gan": _TENSORFLOWS,
    "gan_scaled_by_hand": _TENSORFLOWS,
    "logs_of_an_own_train_step": _TENSORFLOWS,
    "loss_scale_made_outside_the_scope": _OVERFLOWS,
    "mixed_bfloat16": "another element than on TensorFlow is rounded by more than 2e-3",
    "mixed_float16": _OVERFLOWS,
    "mixed_float16_accumulation_overflow": _OVERFLOWS,
    "mixed_float16_accumulation_overflow_in_the_update": _OVERFLOWS,
    "mixed_float16_overflow": _OVERFLOWS,
    "mixed_float16_uneven": _OVERFLOWS,
    "moving_statistics_are_averaged": "its reference is TensorFlow's",
    "only_trained_in_the_scope": "Keras itself fails, in one process",
    "own_loop_with_optimizer_made_outside": _TENSORFLOWS,
    "synchronized_batch_normalization": "Keras refuses it on JAX",
    "tensorflow_checkpoint": _TENSORFLOWS,
    "wrapped_optimizer_in_scope": _REFUSED,
}


def _all_rows():
    return [name for name, row in running.all_rows().items() if STRATEGY in row.modes]


def _parameters():
    names = [name for name in _all_rows() if name not in _WITHOUT]
    return choosing.on_two_and_three_workers(names, _QUICK, _WITH_THREE_WORKERS)


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    """A function of a number of workers: what each showed; of 0: what one process did."""
    groups = {}

    def of(workers):
        if workers not in groups:
            rows = asked(request, test_row)
            names = {row["name"] for row in rows if workers in (0, row["workers"])}
            folder = str(tmp_path_factory.mktemp("files"))
            groups[workers] = run_workers(
                running.run_rows,
                workers=max(workers, 1),
                servers=1 if workers else 0,
                timeout=_GROUP_SECONDS,
                env=choosing.ENVIRONMENT,
                args=(STRATEGY if workers else SINGLE, folder, sorted(names)),
            )
        return groups[workers]

    return of


@pytest.mark.time_limit(2 * _GROUP_SECONDS)
@pytest.mark.parametrize(("name", "workers"), _parameters())
def test_row(results, name, workers):
    single, ours = side_by_side.checked(name, results(0)[0], results(workers))
    rtol, atol = (2e-3, 2e-4) if running.all_rows()[name].rounded else (1e-5, 1e-6)
    for array, expected in zip(ours["arrays"], single["arrays"], strict=True):
        np.testing.assert_allclose(np.array(array), np.array(expected), rtol=rtol, atol=atol)


def test_what_is_chosen_or_left_out_exists():
    chosen = {*_QUICK, *_WITH_THREE_WORKERS}
    assert chosen | _WITHOUT.keys() <= set(_all_rows())
    assert not chosen & _WITHOUT.keys()
