"""The programs of tests/foreign that are no TensorFlow's, with the same tolerances, on JAX."""

import pytest

from tests.foreign import comparing, on_jax, running

pytest.importorskip("jax", reason="Keras on JAX needs jax")

# As the programs' dtype asks for; without it JAX makes float32 of float64.
_ENVIRONMENT = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_X64": "1",
    "BYTEPS_OPERATION_TIMEOUT": "240",
}

# In `make test`; the others are in `make test-long`.
_QUICK = (
    "evaluating_callback",
    "recommender",
    "predicting_callback",
    "siamese_contrastive",
    "structured_data",
)
_WITH_THREE_WORKERS = (
    *_QUICK,
    "added_sum",
    "batch_normalization",
    "batches_by_hand",
    "loss_class",
    "imbalanced",
    "seq2seq_mean_of_weights",
    "timeseries_lstm",
)


def _parameters():
    return [
        pytest.param(
            name,
            workers,
            id=f"{name}-{workers}",
            marks=() if name in _QUICK and workers == 2 else pytest.mark.long,
        )
        for name in running.all_programs()
        for workers in (2, 3)
        if name not in on_jax.WITHOUT and (workers == 2 or name in _WITH_THREE_WORKERS)
    ]


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    return comparing.results_of(request, test_program, tmp_path_factory, _ENVIRONMENT)


@pytest.mark.time_limit(2 * comparing.GROUP_SECONDS)
@pytest.mark.parametrize(("name", "workers"), _parameters())
def test_program(results, name, workers):
    comparing.check(results, name, workers, on_jax.differs(name, running.all_programs()[name]))


def test_what_is_chosen_or_left_out_exists():
    chosen = {*_QUICK, *_WITH_THREE_WORKERS}
    assert chosen | on_jax.WITHOUT.keys() <= running.all_programs().keys()
    assert not chosen & on_jax.WITHOUT.keys()
