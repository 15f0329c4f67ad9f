"""States of trees of JAX's arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tf_byteps as bps
from tests.cluster import run_processes
from tests.elastic import jax_programs
from tf_byteps import _engine
from tf_byteps.errors import ExchangeError
from tf_byteps.jax import new_workers


@pytest.fixture
def alone():
    bps.init()
    yield
    bps.shutdown()


def test_a_state_goes_back(alone):
    """Also if the arrays were given up to a step, as a donated argument is."""
    state = bps.elastic.JaxState(weights={"a": jnp.arange(3.0), "key": jax.random.key(1)}, seen=[])
    state.weights["a"] = jax.jit(lambda x: x + 1, donate_argnums=0)(state.weights["a"])
    state.seen.append(1)
    state.commit()
    state.weights = jax.jit(lambda tree: {**tree, "a": 2 * tree["a"]}, donate_argnums=0)(
        state.weights
    )
    state.seen.append(2)
    for _ in range(2):
        state.restore()
        assert state.weights["a"].tolist() == [1, 2, 3] and state.seen == [1]
        assert jax.random.key_data(state.weights["key"]).tolist() == [0, 1]
        state.weights["a"] = state.weights["a"] * 5


def test_a_state_is_not_saved_after_a_loss(alone, monkeypatch):
    state = bps.elastic.JaxState(weights=jnp.ones(2), step=1)
    state.weights, state.step = state.weights + 1, 2
    monkeypatch.setattr(_engine, "worker_failure", lambda: "lost worker 1")
    with pytest.raises(ExchangeError, match="lost worker 1"):
        state.commit()
    state.restore()
    assert (state.weights.tolist(), state.step) == ([1, 1], 1)


def test_functions_are_compiled_again(alone):
    """A new epoch has other workers (protocol rule 16)."""
    traces = []

    @jax.jit
    def function(x):
        traces.append(1)
        return x + 1

    for epoch in range(3):
        function(np.float32(1))
        function(np.float32(2))
        assert len(traces) == epoch + 1
        new_workers.changed()


def test_all_get_the_state_of_worker_0():
    outcomes = run_processes(
        jax_programs.first_workers, 2, 1, env={"JAX_PLATFORMS": "cpu"}, timeout=120
    )
    first, second = [each.result for each in outcomes if each.label.startswith("worker")]
    kept, after, found, refused = first
    assert kept and after == [2, 2, 2]
    assert found[:5] == [[1, 1, 1], 0, "bfloat16", 0, [0]]
    assert list(second[1:3]) == [after, found]
    said = "the workers differ in the arrays of the elastic state: worker 1 lacks"
    assert said in refused and refused == second[3]
