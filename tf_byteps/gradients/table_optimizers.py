"""A table's own optimizer, which updates its rows instead of the model's.

Keras gives the gradients of all weights to the model's optimizer. That one makes no states for the
rows of such a table, and hands their gradients over, where it would overwrite a float8 scale: when
they have been weighted and unscaled, and before it clips those of its own. What a step does with
gradients (sums over workers, skipped steps of `LossScaleOptimizer`) therefore holds for both.

Keras saves and loads the optimizer with the layer, whose attribute it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import keras

from tf_byteps.gradients import updates
from tf_byteps.private.keras import BaseOptimizer
from tf_byteps.tables import on_servers
from tf_byteps.types import Gradient, Optimizer, Variable
from tf_byteps.wrapping import wrap_all

_ATTRIBUTE = "byteps_optimizer_of_table"
_lock = threading.Lock()
_installed = False


def made_for(
    variable: keras.Variable, optimizer: Optimizer, kind: type[Any] | None = None
) -> Optimizer:
    """Gives a variable an optimizer of its own: a new one, equal to the program's.

    Args:
        variable: the rows of some tables.
        optimizer: the program's, a `keras.optimizers.Optimizer`. It is not changed.
        kind: the class of the new one. Default: that of the program's.

    Returns:
        The `keras.optimizers.Optimizer`, with its states.
    """
    own = (kind or type(optimizer)).from_config(optimizer.get_config())
    install()
    for each in (variable, variable.value):
        setattr(each, _ATTRIBUTE, own)
    own.build([variable])
    return own


def _is_of_another(optimizer: Optimizer, variable: Variable) -> bool:
    return getattr(variable, _ATTRIBUTE, optimizer) is not optimizer


def install() -> None:
    """Makes the changes to Keras's optimizers, once per process."""
    global _installed
    with _lock:
        if not _installed:
            wrap_all(
                [
                    (BaseOptimizer, "_overwrite_variable_with_gradient", _leaves_out),
                    (BaseOptimizer, "_overwrite_variables_directly_with_gradients", _hand_over),
                ]
            )
        _installed = True


def _leaves_out(
    original: Callable[..., bool], self: keras.optimizers.Optimizer, variable: Variable
) -> bool:
    """Whether an optimizer makes no states for a variable, and does not update it."""
    if isinstance(self, keras.optimizers.LossScaleOptimizer):  # which unscales all
        return original(self, variable)
    return _is_of_another(self, variable) or original(self, variable)


def _hand_over(
    original: Callable[..., Any],
    self: keras.optimizers.Optimizer,
    grads: Sequence[Gradient],
    vars: Sequence[Variable],
) -> Any:
    """Updates the variables that have an optimizer of their own, and goes on with the others."""
    own, others, of_optimizer = [], [], {}
    for pair in zip(grads, vars, strict=True):
        (own if _is_of_another(self, pair[1]) else others).append(pair)
    if not own:
        return original(self, grads, vars)
    if self.gradient_accumulation_steps:
        raise NotImplementedError(
            f"gradient_accumulation_steps={self.gradient_accumulation_steps} does not work with "
            "tables that have an optimizer of their own (TableConfig(optimizer=...)): leave one of "
            "both out"
        )
    for gradient, variable in own:
        if self.loss_scale_factor is not None:  # Keras unscales the others later
            gradient = keras.ops.divide(gradient, self.loss_scale_factor)
        optimizer = getattr(variable, _ATTRIBUTE)
        of_optimizer.setdefault(id(optimizer), (optimizer, []))[1].append((gradient, variable))
    with updates.updating(self, list(vars)), on_servers.updating_together():
        for optimizer, pairs in of_optimizer.values():
            optimizer.apply([each for each, _ in pairs], [variable for _, variable in pairs])
    return original(self, [each for each, _ in others], [variable for _, variable in others])
