"""What the workers of test_push_pull_in_jax.py do when one of them is lost."""

import os

import tf_byteps as bps


def survive():
    """Worker 1 ends within compiled steps; what worker 0 sees in them, and in a later exchange."""
    import jax
    import jax.numpy as jnp

    bps.init()

    @jax.jit
    def step(x):
        return bps.jax.push_pull([x, 2 * x, 3 * x], op="sum", name="steps")

    x = jnp.ones([100000])
    for _ in range(3):
        jax.block_until_ready(step(x))
    if bps.rank() == 1:
        os._exit(3)
    errors = []
    try:
        with bps.jax.exchange_errors():
            while True:
                jax.block_until_ready(step(x))
    except bps.BytePSError as error:
        errors.append((type(error).__name__, str(error)))
    try:
        bps.jax.push_pull(x, name="later")
    except bps.BytePSError as error:
        errors.append((type(error).__name__, str(error)))
    return errors
