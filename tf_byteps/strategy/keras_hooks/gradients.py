"""What is changed in Keras's variables, losses and optimizers; see the package for why."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf

from tf_byteps.exchange.optimizers import is_overwritten
from tf_byteps.exchange.strategies import is_ours
from tf_byteps.gradients import overwriting, row_updates, updates
from tf_byteps.gradients.accumulation import reduce_if_updating
from tf_byteps.gradients.reducing import finite_everywhere
from tf_byteps.gradients.replica import in_our_replica, in_our_scope
from tf_byteps.private.keras import BaseOptimizer, KerasVariable, keras_loss
from tf_byteps.private.keras_tensorflow import TFOptimizer, keras_core, keras_nn
from tf_byteps.private.tensorflow import (
    random_seed as framework_seed,
    tensorflow_cond,
    tensorflow_while,
)
from tf_byteps.strategy.fit.foreign_optimizers import adopt_optimizer
from tf_byteps.strategy.step import (
    attention,
    branches,
    cross_step,
    embeddings,
    local_batch,
    loops,
    losses,
    noise,
    tapes,
)
from tf_byteps.strategy.step.gradients import reduce_gradients
from tf_byteps.strategy.variables import made_by_keras
from tf_byteps.tables import gradients as tables, layout as layouts
from tf_byteps.tables.saving import note_state
from tf_byteps.types import Gradient, TensorLike, Variable
from tf_byteps.wrapping import Change


def changes() -> list[Change]:
    """Each an owner, the name of its attribute, and what replaces that."""
    return [
        (keras_core.Variable, "_initialize", _initialize_variable),
        (keras_core.Variable, "_direct_assign", _assign_variable),
        (BaseOptimizer, "apply", _apply),
        (BaseOptimizer, "_get_current_learning_rate", _learning_rate),
        (BaseOptimizer, "_clip_gradients", _clip_gradients),
        (TFOptimizer, "_all_reduce_sum_gradients", _all_reduce_sum_gradients),
        (BaseOptimizer, "_overwrite_variables_directly_with_gradients", _overwrite_variables),
        (keras.optimizers.Adagrad, "update_step", row_updates.adagrad),
        (keras.layers.Embedding, "call", embeddings.look_up),
        (keras_nn, "dot_product_attention", attention.attend),
        (keras.random.SeedGenerator, "next", noise.of_replica),
        (framework_seed, "get_seed", noise.of_operation),
        (BaseOptimizer, "add_variable", _add_variable),
        (TFOptimizer, "add_variable_from_reference", _add_variable_of),
        (keras.optimizers.LossScaleOptimizer, "apply", _loss_scale_apply),
        (keras.optimizers.LossScaleOptimizer, "check_finite", _check_finite),
        (keras_loss, "scale_loss_for_distribution", losses.scale),
        (keras_loss, "unscale_loss_for_distribution", losses.unscale),
        (keras_loss, "reduce_weighted_values", losses.reduce_weighted_values),
        (keras.metrics.Mean, "update_state", losses.update_mean),
        (tf.GradientTape, "gradient", tapes.gradient),
        (tf.GradientTape, "jacobian", tapes.jacobian),
        (tf.GradientTape, "batch_jacobian", tapes.jacobian),
        (tf.GradientTape, "__enter__", loops.enter_tape),
        (tensorflow_cond, "cond", branches.cond),
        (tensorflow_while, "while_loop", branches.while_loop),
        (tf.nn, "compute_average_loss", losses.compute_average_loss),
        (tf.nn, "scale_regularization_loss", losses.scale_regularization_loss),
    ]


def replace_value() -> None:
    """`Variable.value` is not a function that could be wrapped."""
    setattr(keras_core.Variable, "value", property(_value_of_variable))  # noqa: B010


def _initialize_variable(
    original: Callable[..., Any], self: keras.Variable, value: TensorLike
) -> Any:
    with made_by_keras():
        return original(self, value)


def _assign_variable(original: Callable[..., Any], self: keras.Variable, value: TensorLike) -> Any:
    cross_step.flush_before_use(self)
    return original(self, value)


def _value_of_variable(self) -> Any:
    cross_step.flush_before_use(self)
    return KerasVariable.value.fget(self)


def _apply(
    original: Callable[..., Any],
    self: keras.optimizers.Optimizer,
    grads: list[Gradient],
    trainable_variables: list[Variable] | None = None,
) -> None:
    if updates.current() is None and in_our_scope():
        adopt_optimizer(self)
        loops.apply(original, self, grads, trainable_variables)
        return
    if not in_our_replica():
        original(self, grads, trainable_variables)
        return
    if trainable_variables is not None:
        trainable_variables = list(trainable_variables)
    are_reduced, variables = False, list(trainable_variables or self._trainable_variables)
    if updates.current() is None:
        grads, are_reduced = tapes.handed_to_optimizer(list(grads), variables)
    if are_reduced or not cross_step.defer(self, grads, trainable_variables):
        adopt_optimizer(self)
        with updates.updating(self, variables, reduced=are_reduced):
            original(self, grads, trainable_variables)


def _learning_rate(original: Callable[..., Any], self: keras.optimizers.Optimizer) -> Any:
    kept = cross_step.own_learning_rate(self)
    return original(self) if kept is None else kept


def _clip_gradients(
    original: Callable[..., Any], self: keras.optimizers.Optimizer, grads: list[Gradient]
) -> Any:
    """The first thing that Keras does with the gradients of an update, and only in updates."""
    update = updates.current()
    if update is not None and in_our_replica():
        tables.refuse(
            [layouts.of(variable) for variable in update.variables],
            clipnorm=self.clipnorm,
            global_clipnorm=self.global_clipnorm,
            gradient_accumulation_steps=self.gradient_accumulation_steps,
        )
    if update is not None and update.optimizer is self and in_our_replica():
        grads = tables.finite(update.reduce_once(grads, reduce_gradients), update.variables)
    return row_updates.clip(original, self, grads) if in_our_replica() else original(self, grads)


def _all_reduce_sum_gradients(
    original: Callable[..., Any], self: keras.optimizers.Optimizer, grads_and_vars: Iterable[Any]
) -> Any:
    update = updates.current()
    if update is not None and update.reduced:
        return list(grads_and_vars)
    return original(self, grads_and_vars)


def _overwrite_variables(
    original: Callable[..., Any],
    self: keras.optimizers.Optimizer,
    grads: list[Gradient],
    variables: list[Variable],
) -> Any:
    if in_our_replica():
        new_values = [
            local_batch.contribution(gradient)
            if gradient is not None and is_overwritten(variable)
            else gradient
            for gradient, variable in zip(grads, variables, strict=True)
        ]
        grads = overwriting.reduce_overwriting(new_values, variables)
    grads, variables = original(self, grads, variables)
    update = updates.current()
    if update is not None and update.optimizer is self and in_our_replica():
        update.variables = list(variables)  # without those that have no gradient
    return grads, variables


def _add_variable(
    original: Callable[..., Any], self: keras.optimizers.Optimizer, *args: object, **kwargs: object
) -> Any:
    adopt_optimizer(self)
    mine = self._distribution_strategy
    if is_ours(mine) and not tf.distribute.has_strategy():
        with mine.scope():  # a program may build the optimizer outside of it
            return original(self, *args, **kwargs)
    return original(self, *args, **kwargs)


def _add_variable_of(
    original: Callable[..., Any],
    self: keras.optimizers.Optimizer,
    reference_variable: Variable,
    *args: object,
    **kwargs: object,
) -> Any:
    state = _add_variable(original, self, reference_variable, *args, **kwargs)
    return note_state(state, reference_variable)


def _loss_scale_apply(
    original: Callable[..., Any],
    self: keras.optimizers.Optimizer,
    grads: list[Gradient],
    trainable_variables: list[Variable] | None = None,
) -> Any:
    if updates.current() is None and in_our_scope():
        return loops.apply(original, self, grads, trainable_variables)
    if not in_our_replica() or updates.current() is not None:
        return original(self, grads, trainable_variables)
    variables = list(trainable_variables or self._trainable_variables)
    grads, are_reduced = tapes.handed_to_optimizer(list(grads), variables)
    # With accumulation the gradients are reduced once in several steps, see _check_finite.
    if not are_reduced and not self.inner_optimizer.gradient_accumulation_steps:
        grads, are_reduced = reduce_gradients(grads, variables), True
    with updates.updating(self, variables, reduced=are_reduced):
        return original(self, grads, trainable_variables)


def _check_finite(
    original: Callable[..., Any], self: keras.optimizers.Optimizer, grads: list[Gradient]
) -> Any:
    update, batch = updates.current(), local_batch.current()
    if update is not None and in_our_replica() and layouts.any_of(update.variables):
        # Each worker has the gradients of other rows.
        return finite_everywhere(original(self, grads))
    if update is None or update.reduced or not in_our_replica():
        return original(self, grads)
    if batch is not None and batch.is_local:
        return original(self, grads)

    def check(gradients: list[Gradient]) -> Any:
        return original(self, gradients)

    def reduce(gradients: list[Gradient], variables: list[Variable]) -> Any:
        reduced = reduce_gradients(gradients, variables)
        return reduced, check(reduced)

    finite, update.reduced_of = reduce_if_updating(self, grads, update.variables, check, reduce)
    return finite
