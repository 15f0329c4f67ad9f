"""What the workers of test_process_sets.py do with JAX's arrays."""

import jax
import jax.numpy as jnp
import numpy as np

import tf_byteps
from tests import set_values

ENDS = tf_byteps.ProcessSet([0, 2])
LAST = tf_byteps.ProcessSet([1, 2])


def own_sets():
    return [each for each in (ENDS, LAST) if each.included()]


def exchanges():
    tf_byteps.init(process_sets=[ENDS, LAST])
    x = jnp.asarray([1.0 + tf_byteps.rank()])

    def step(x):
        return [
            (
                tf_byteps.jax.push_pull(x, op="sum", process_set=each),
                tf_byteps.jax.push_pull(x, process_set=each),
                tf_byteps.jax.gather(x, process_set=each),
                tf_byteps.jax.broadcast(x, each.ranks[0], process_set=each),
            )
            for each in own_sets()
        ]

    both = [jax.tree.map(np.asarray, run(x)) for run in (step, jax.jit(step))]
    return jax.tree.map(lambda each: each.tolist(), both)


def values():
    """Of Keras's interface."""
    return set_values.of(own_sets())


def gradients():
    """Of a loss that weights each worker's rows by its rank."""
    weight = 1.0 + tf_byteps.rank()
    found = []
    for each in own_sets():

        def loss(x, each=each):
            rows = tf_byteps.jax.gather(x, gradient="sum", name="rows", process_set=each)
            total = tf_byteps.jax.push_pull(x, op="sum", name="total", process_set=each)
            return weight * (jnp.sum(rows) + jnp.sum(total))

        found.append(np.asarray(jax.grad(loss)(jnp.ones([2]))).tolist())
    return found


def refusals():
    other = next((each for each in (ENDS, LAST) if not each.included()), None)
    if other is None:
        return None
    try:
        tf_byteps.jax.push_pull(jnp.ones([1]), process_set=other)
    except ValueError as error:
        return str(error)
