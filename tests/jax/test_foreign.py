"""The programs of tests/foreign that are no TensorFlow's, with the same tolerances, on JAX."""

import pytest

from tests.foreign import comparing, on_jax, running
from tests.jax import choosing

pytest.importorskip("jax", reason="Keras on JAX needs jax")

# In `make test`; the others are in `make test-long`.
_QUICK = ("evaluating_callback", "recommender", "structured_data")
# JAX computes the softmax of attention in float32, also of float64. So the gradient of the keys'
# bias, which is zero, is rounding, which Adam makes larger: the bias differs by up to 7e-6.
_WITH_TWO_WORKERS_ONLY = ("text_transformer_adam", "vision_transformer")


def _parameters():
    names = [name for name in running.all_programs() if name not in on_jax.WITHOUT]
    with_three = [name for name in names if name not in _WITH_TWO_WORKERS_ONLY]
    return choosing.on_two_and_three_workers(names, _QUICK, with_three)


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    return comparing.results_of(request, test_program, tmp_path_factory, choosing.IN_FLOAT64)


@pytest.mark.time_limit(2 * comparing.GROUP_SECONDS)
@pytest.mark.parametrize(("name", "workers"), _parameters())
def test_program(results, name, workers):
    comparing.check(results, name, workers, on_jax.differs(name, running.all_programs()[name]))


def test_what_is_chosen_or_left_out_exists():
    chosen = {*_QUICK, *_WITH_TWO_WORKERS_ONLY}
    assert chosen | on_jax.WITHOUT.keys() <= running.all_programs().keys()
    assert not chosen & on_jax.WITHOUT.keys()
