"""Rows about mixed precision and the loss scale."""

import keras
import numpy as np

from tests.conformance.sides import BATCH, STRATEGY, compiled, numbers, row


def _mixed(side, policy, x, optimizer=lambda: keras.optimizers.SGD(0.05)):
    keras.config.set_dtype_policy(policy)
    try:
        model = compiled(side, optimizer)
        side.fit(model, x, numbers(1, seed=1), epochs=2)
        # With float16 the optimizer's first variables are the step and the scale.
        return model.get_weights() + [np.array(v) for v in model.optimizer.variables[:2]]
    finally:
        keras.config.set_dtype_policy("float32")


def _overflowing(step=2):
    x = numbers(5)
    x[step * BATCH - 1] = np.inf  # on the last worker only
    return x


@row(rounded=True)
def mixed_float16(side):
    return _mixed(side, "mixed_float16", numbers(5))


@row(rounded=True)
def mixed_float16_overflow(side):
    return _mixed(side, "mixed_float16", _overflowing())


def _scaled():
    inner = keras.optimizers.SGD(0.05, global_clipnorm=0.5)
    return keras.optimizers.LossScaleOptimizer(inner, initial_scale=1024.0)


@row(rounded=True)
def mixed_float16_own_loss_scale(side):
    return _mixed(side, "mixed_float16", _overflowing(), _scaled)


def _accumulating():
    return keras.optimizers.SGD(0.05, gradient_accumulation_steps=4)


@row(rounded=True)
def mixed_float16_accumulation_overflow(side):
    return _mixed(side, "mixed_float16", _overflowing(), _accumulating)


@row(rounded=True)
def mixed_float16_accumulation_overflow_in_the_update(side):
    """The fourth step would update; the sums that were pushed for it are not used."""
    return _mixed(side, "mixed_float16", _overflowing(step=4), _accumulating)


@row(STRATEGY, rounded=True)
def mixed_float16_uneven(side):
    """A worker without rows must not keep the others from a decision about the scale."""
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = compiled(side, lambda: keras.optimizers.SGD(0.05))
        side.fit(model, numbers(5)[:25], numbers(1, seed=1)[:25], epochs=2)
        return model.get_weights() + [np.array(v) for v in model.optimizer.variables[:2]]
    finally:
        keras.config.set_dtype_policy("float32")


@row(rounded=True)
def mixed_bfloat16(side):
    return _mixed(side, "mixed_bfloat16", numbers(5))
