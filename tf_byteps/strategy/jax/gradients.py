"""Gradients of the whole batch for Keras's optimizers, and losses in the unit that it takes.

Each worker's gradients are those of a mean over its rows. They are weighted by its share of the
batch's rows and added up where they come to be (see `origins`). Those that come to be elsewhere are
reduced where an optimizer takes them: before loss scale, clipping and accumulation. A loss that is
no mean over rows is divided by that share first.

| loss | in one process | here, before its weight |
|---|---|---|
| reduction "sum" | the sum over all rows | the sum over own rows / share |
| a mean over what a mask leaves | sum / left | own sum / left on all workers / share |
| "mean_with_sample_weight" | sum / weights | own sum / weights of all workers / share |
| one number for all rows, weighted | it x the mean weight | own x the mean weight of all rows |
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras.src.losses import loss as keras_loss
from keras.src.optimizers.base_optimizer import BaseOptimizer

from tf_byteps import runtime
from tf_byteps.exchange.optimizers import is_overwritten
from tf_byteps.exchange.reduce_op import Sum
from tf_byteps.jax.collectives import push_pull_all
from tf_byteps.jax.gradients import push_pull_gradients
from tf_byteps.strategy.jax import origins, steps
from tf_byteps.strategy.jax.steps import Step
from tf_byteps.types import Optimizer
from tf_byteps.wrapping import Change

_logger = logging.getLogger("tf_byteps")
_said: set[str] = set()


def changes() -> list[Change]:
    """Each an owner, the name of its attribute, and what replaces that."""
    loss_scale = keras.optimizers.LossScaleOptimizer
    return [
        (keras.StatelessScope, "__init__", _read_from_scope),
        (BaseOptimizer, "stateless_apply", _stateless_apply),
        (loss_scale, "stateless_apply", _stateless_apply),
        (BaseOptimizer, "apply", _apply),
        (loss_scale, "apply", _apply),
        (keras_loss, "reduce_weighted_values", _reduce_weighted_values),
        (keras.metrics.Mean, "update_state", _update_mean),
        (keras.random.SeedGenerator, "next", _next_seed),
    ]


def _read_from_scope(
    original: Callable[..., Any],
    self: Any,
    state_mapping: Iterable[tuple[Any, Any]] | None = None,
    collect_losses: bool = False,
    initialize_variables: bool = True,
) -> None:
    """`StatelessScope.__init__`."""
    pairs = list(state_mapping or ())
    original(self, pairs, collect_losses, initialize_variables)
    origins.spread(self, pairs, reduce)


def _stateless_apply(
    original: Callable[..., Any],
    self: Any,
    optimizer_variables: Sequence[Any],
    grads: Sequence[Any],
    trainable_variables: Sequence[Any],
) -> Any:
    return _reduced(
        self,
        grads,
        self._trainable_variables,
        lambda grads: original(self, optimizer_variables, grads, trainable_variables),
    )


def _apply(
    original: Callable[..., Any],
    self: Any,
    grads: Iterable[Any],
    trainable_variables: Iterable[Any] | None = None,
) -> Any:
    variables = None if trainable_variables is None else list(trainable_variables)
    return _reduced(
        self,
        grads,
        variables or self._trainable_variables,
        lambda grads: original(self, grads, variables),
    )


def _reduced(
    optimizer: Optimizer,
    grads: Iterable[Any],
    variables: Sequence[Any],
    apply: Callable[[Any], Any],
) -> Any:
    step = steps.current()
    if step is None or step.is_reduced or not step.is_training:
        return apply(grads)
    step.is_reduced = True  # for the optimizers within this one
    try:
        return apply(_of_whole_batch(step, list(grads), list(variables)))
    finally:
        step.is_reduced = False


def _of_whole_batch(step: Step, grads: list[Any], variables: list[Any]) -> list[Any]:
    """Reduces the gradients that an optimizer gets, but for those that have been so already.

    What a step has made of such a gradient may depend on the worker's rows, too. Reducing it again
    changes nothing where it does not: the workers' shares add up to 1.
    """
    own = [
        index
        for index, gradient in enumerate(grads)
        if gradient is not None and id(gradient) not in step.reduced
    ]
    _warn_of_own(step, [variables[index] for index in own])
    names = [step.numbered(f"gradient/{variables[index].path}") for index in own]
    sums = reduce(step, [grads[i] for i in own], [variables[i] for i in own], names)
    for index, total in zip(own, sums, strict=True):
        grads[index] = total
    return grads


def _warn_of_own(step: Step, variables: list[Any]) -> None:
    own = [variable for variable in variables if id(variable) not in step.at_origin]
    if not own or runtime.rank() or step.model.name in _said:
        return
    _said.add(step.model.name)
    _logger.warning(
        "a training step of the model %r computes the gradient of %r from values that Keras has "
        "not read, or row by row: it is averaged over the workers where the optimizer takes it. "
        "What the step does with it before, such as clipping it, is of the worker's own rows; "
        "average it first, with tf_byteps.jax.push_pull_tree",
        step.model.name,
        own[0].path,
    )


def reduce(
    step: Step, grads: list[Any], variables: Sequence[Any], names: Sequence[str]
) -> list[Any]:
    """The gradients of the whole batch.

    Args:
        step: that is traced.
        grads: this worker's.
        variables: the `keras.Variable`s that they belong to.
        names: of the exchanges.

    Returns:
        The list of gradients.
    """
    for variable in variables:
        if is_overwritten(variable):
            raise NotImplementedError(
                f"the variable {variable.path!r} is overwritten with its gradient, as in "
                "float8 training, which BytePSStrategy does not support with KERAS_BACKEND=jax"
            )
    strategy = step.model.distribute_strategy
    backup_workers = strategy.backup_workers
    contributions = [_contribution(step, gradient, backup_workers) for gradient in grads]
    return push_pull_gradients(
        contributions, variables, names, strategy.compression, backup_workers=backup_workers
    )


def _contribution(step: Step, gradient: Any, backup_workers: int) -> Any:
    """What this worker adds. With backup workers nobody knows whose rows will count."""
    if not step.rows:
        # XLA makes zeros of it. For `start_scheduling` it is still made of the gradient, so that
        # all workers start their exchanges alike.
        return jax.lax.select_n(np.bool_(False), jnp.zeros_like(gradient), gradient)
    factor = 1 if backup_workers else step.share * runtime.size()
    return gradient if factor == 1 else gradient * jnp.asarray(factor, gradient.dtype)


def _reduce_weighted_values(
    original: Callable[..., Any],
    values: Any,
    sample_weight: Any = None,
    mask: Any = None,
    reduction: str = "sum_over_batch_size",
    dtype: Any = None,
) -> Any:
    step = steps.current()
    if step is None or reduction in (None, "none"):
        return original(values, sample_weight, mask, reduction, dtype)
    if jnp.ndim(values) == 0:
        if sample_weight is None or mask is not None or reduction == "mean_with_sample_weight":
            return original(values, sample_weight, mask, reduction, dtype)
        return _times_weights(step, jnp.asarray(values, dtype), sample_weight, reduction)
    loss = original(values, sample_weight, mask, reduction, dtype)
    if reduction == "sum":
        return loss / step.share if step.rows else loss
    weights: Any = mask
    if reduction == "mean_with_sample_weight":
        weights = keras_loss.apply_mask(sample_weight, mask, loss.dtype, reduction)
    if weights is None:
        return loss
    own = jnp.sum(jnp.asarray(weights, _wide()))
    (total,) = _total(step, [own])
    share = max(step.share, 1 / step.all_rows)  # without rows the loss counts nothing
    factor = jnp.where(total > 0, own / jnp.where(total > 0, total * share, 1), 0)
    return loss * factor.astype(loss.dtype)


def _times_weights(step: Step, loss: Any, weights: Any, reduction: str) -> Any:
    """One number for all rows, which Keras multiplies by each row's weight and then reduces."""
    weights = jnp.asarray(weights, _wide())
    total, count = _total(step, [jnp.sum(weights), jnp.asarray(weights.size, _wide())])
    factor = total if reduction == "sum" else total / count
    return loss * factor.astype(loss.dtype)


def _total(step: Step, numbers: list[Any]) -> Any:
    """The sums of numbers over the workers' rows."""
    own = jnp.stack(numbers) if step.rows else jnp.zeros([len(numbers)], _wide())
    name = step.numbered("weights of a loss")
    (total,) = push_pull_all([jax.lax.stop_gradient(own)], [name], is_derived=False, op=Sum)
    return total


def _wide() -> Any:
    return jax.dtypes.canonicalize_dtype("float64")  # float32, unless it is allowed


def _update_mean(
    original: Callable[..., Any], self: Any, values: Any, sample_weight: Any = None
) -> Any:
    """A number of the step, such as its loss, counts with the rows that it is a mean over."""
    step = steps.current()
    if step is not None and sample_weight is None and jnp.ndim(values) == 0:
        sample_weight = step.share
    return original(self, values, sample_weight)


def _next_seed(original: Callable[..., Any], self: Any, ordered: bool = True) -> Any:
    """Each worker draws its own numbers, while the generators stay alike."""
    seed = original(self, ordered)
    if steps.current() is None or not runtime.rank():
        return seed
    return seed + jnp.asarray([steps.offset_of_seeds(), 0], seed.dtype)
