"""What workers of test_jax_states.py do."""

import jax
import jax.numpy as jnp
import numpy as np

import tf_byteps as bps


def first_workers():
    """A state's trees are worker 0's after `sync`, and others are refused."""
    bps.init()
    rank = bps.rank()
    weights = {"a": jnp.full([3], 1.0 + rank), "key": jax.random.key(rank), "steps": rank}
    state = bps.elastic.JaxState(weights=weights, half=jnp.ones([], "bfloat16") * rank, best=[rank])
    before = weights["a"]
    state.sync()
    kept = state.weights["a"] is before
    state.weights = {**state.weights, "a": 2 * state.weights["a"]}
    state.best.append(3)
    after = np.asarray(state.weights["a"]).tolist()
    state.restore()
    drawn = float(jax.random.uniform(state.weights["key"]))
    found = [
        np.asarray(state.weights["a"]).tolist(),
        float(state.half),
        str(state.half.dtype),
        state.weights["steps"],
        state.best,
        drawn,
    ]
    other = bps.elastic.JaxState(weights=jnp.ones([2 + rank]))
    try:
        other.sync()
    except ValueError as error:
        return kept, after, found, str(error)
    return kept, after, found, "no error"
