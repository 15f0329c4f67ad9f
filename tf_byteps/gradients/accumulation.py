"""Gradient accumulation within a `LossScaleOptimizer`: gradients leave before all are known.

Keras looks first whether all gradients are finite; then it accumulates them, or updates with what
has been accumulated. Reduced in that update, no gradient would be sent before the end of
backpropagation. So, in a step that updates, each gradient is reduced as soon as it is there,
together with what was accumulated before, and the sums show whether all workers' gradients are
finite. In the other steps the workers agree about that with one small exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_byteps.gradients.reducing import finite_everywhere
from tf_byteps.ops.compiling import is_compiled
from tf_byteps.types import Gradient


def reduce_if_updating(
    loss_scale: keras.optimizers.LossScaleOptimizer,
    gradients: Sequence[Gradient],
    variables: Sequence[keras.Variable],
    check: Callable[..., Any],
    reduce: Callable[..., Any],
    workers: str = "",
) -> Any:
    """Reduces this step's gradients if it is one that updates.

    Args:
        loss_scale: a built `LossScaleOptimizer` whose inner optimizer accumulates.
        gradients: this worker's scaled gradients of one step, or `None`s.
        variables: the `keras.Variable`s that they belong to.
        check: takes a list of gradients; returns whether they are finite, a boolean scalar.
        reduce: takes a list of gradients and one of variables; returns the list of results and
            whether those are finite, a boolean scalar that is the same on all workers.
        workers: see `finite_everywhere`.

    Returns:
        Whether all workers' gradients are finite, a boolean scalar; and a function that gives the
        reduced gradients of a list of variables, to be used by the update only.
    """
    inner = loss_scale.inner_optimizer
    steps = inner.gradient_accumulation_steps
    used, overwriting = [], []
    for gradient, variable in zip(gradients, variables, strict=True):
        if gradient is None:
            continue
        if inner._overwrite_variable_with_gradient(variable):
            overwriting.append(gradient)  # a new value, neither accumulated nor reduced
        else:
            used.append((gradient, variable))
    variables = [variable for _, variable in used]

    def update() -> Any:
        totals = []
        for gradient, variable in used:
            accumulated = inner._accumulated_gradients[inner._get_variable_index(variable)]
            unscaled = keras.ops.divide(gradient, loss_scale.dynamic_scale)
            totals.append((unscaled + accumulated) / steps)  # as Keras computes it
        reduced, finite = reduce(totals, variables)
        if overwriting:
            finite = tf.logical_and(finite, finite_everywhere(check(overwriting), workers))
        return finite, [tf.convert_to_tensor(gradient) for gradient in reduced]

    def accumulate() -> Any:
        # Nobody reads it. XLA wants the other branch's shapes; without XLA they would cost memory.
        nothing = [tf.zeros(v.shape if is_compiled() else [0], v.dtype) for v in variables]
        return finite_everywhere(check(gradients), workers), nothing

    updates = tf.equal((inner._iterations + 1) % steps, 0)
    finite, reduced = tf.cond(updates, update, accumulate)
    by_variable = {id(v): gradient for v, gradient in zip(variables, reduced, strict=True)}

    def reduced_of(variables: Sequence[keras.Variable]) -> list[Any]:
        return [tf.ensure_shape(by_variable[id(v)], v.shape) for v in variables]

    return finite, reduced_of
