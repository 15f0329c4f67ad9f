"""Distributed optimizers on JAX. Where the reduction happens:

* in the outermost `stateless_apply` or `apply`, before clipping and before a `LossScaleOptimizer`
  looks for overflow;
* with gradient accumulation, in the step that updates, of what has been accumulated: sent once for
  each update. Within a `LossScaleOptimizer` workers agree in each step whether the gradients of all
  are finite (protocol rule 27).

Within `BytePSStrategy` the strategy reduces, and this class does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import jax.core
import keras

from tf_byteps.exchange.optimizers import is_overwritten
from tf_byteps.gradients import updates
from tf_byteps.jax.fingerprints import fingerprints
from tf_byteps.keras import first_step
from tf_byteps.keras.distributed import DistributedBase, innermost
from tf_byteps.keras.jax.reduction import Gradient, finite_everywhere
from tf_byteps.strategy.jax import steps

if TYPE_CHECKING:
    _LossScaleOptimizer = keras.optimizers.LossScaleOptimizer
else:  # the class that is given comes behind it
    _LossScaleOptimizer = object

T = TypeVar("T")
State = tuple[list[jax.Array], list[jax.Array]]


class Distributed(DistributedBase):
    """What is put before an optimizer's own class."""

    def stateless_apply(
        self,
        optimizer_variables: Sequence[jax.Array],
        grads: Sequence[Gradient],
        trainable_variables: Sequence[jax.Array],
    ) -> State:
        """See `keras.optimizers.Optimizer.stateless_apply`; reduces the gradients first."""

        def apply(grads: list[Gradient]) -> State:
            return super(Distributed, self).stateless_apply(
                optimizer_variables, grads, trainable_variables
            )

        return self._with_reduced(
            list(grads), self._trainable_variables, lambda: trainable_variables, apply
        )

    def apply(
        self, grads: Iterable[Gradient], trainable_variables: Iterable[keras.Variable] | None = None
    ) -> None:
        """See `keras.optimizers.Optimizer.apply`; reduces the gradients over all workers first."""
        given = None if trainable_variables is None else list(trainable_variables)

        def apply(grads: list[Gradient]) -> None:
            super(Distributed, self).apply(grads, given)

        variables = list(given or self._trainable_variables)
        self._with_reduced(
            list(grads), variables, lambda: [each.value for each in variables], apply
        )

    def _with_reduced(
        self,
        grads: list[Gradient],
        variables: list[keras.Variable],
        values: Callable[[], Sequence[jax.Array]],
        apply: Callable[[list[Gradient]], T],
    ) -> T:
        is_inner = updates.current() is not None  # or within this one's `stateless_apply`
        if is_inner or len(grads) != len(variables):  # which Keras says
            return apply(grads)
        if steps.current() is not None:
            self._refuse_arguments()
            return apply(grads)
        if not any(isinstance(value, jax.core.Tracer) for value in [*grads, *values()]):
            check_first_step(self, variables)
        with updates.updating(self, variables) as update:
            if not innermost(self).gradient_accumulation_steps:
                grads = update.reduce_once(grads, self._reduced)
            return apply(grads)

    def _backend_apply_gradients(
        self, grads: list[Gradient], trainable_variables: list[keras.Variable]
    ) -> None:
        if updates.current() is None:
            super()._backend_apply_gradients(grads, trainable_variables)
            return
        with updates.updating(self, trainable_variables):
            super()._backend_apply_gradients(grads, trainable_variables)

    def _overwrite_variables_directly_with_gradients(
        self, grads: list[Gradient], variables: list[keras.Variable]
    ) -> tuple[list[Gradient], list[keras.Variable]]:
        if updates.current() is not None:
            grads = self.byteps_reduction.reduce_overwriting(grads, variables)
        return super()._overwrite_variables_directly_with_gradients(grads, variables)

    def _clip_gradients(self, grads: list[Gradient]) -> list[Gradient]:
        # The first thing that Keras does with accumulated gradients, in each step: it throws away
        # what comes of it in those that do not update.
        update = updates.current()
        if update is not None:
            grads = update.reduce_once(grads, self._reduced_if_updating)
        return super()._clip_gradients(grads)

    def _reduced_if_updating(
        self, grads: list[Gradient], variables: list[keras.Variable]
    ) -> list[Gradient]:
        is_update = (self._iterations + 1) % self.gradient_accumulation_steps == 0
        if not isinstance(is_update, jax.core.Tracer):
            return self._reduced(grads, variables) if is_update else grads
        return jax.lax.cond(is_update, lambda each: self._reduced(each, variables), list, grads)


class DistributedLossScale(Distributed, _LossScaleOptimizer):
    """What is put before the class of a `LossScaleOptimizer`."""

    def check_finite(self, grads: Sequence[Gradient]) -> jax.Array:
        """Whether the gradients of all workers are finite. Keras calls it."""
        finite: Any = super().check_finite(grads)
        update = updates.current()
        if update is None:
            return finite
        # Of gradients that are reduced all workers have the same, and so the same answer.
        is_own = self.byteps_reduction.has_local or any(map(is_overwritten, update.variables))
        is_same = update.reduced and not is_own
        return finite if is_same else finite_everywhere(finite, self.byteps_reduction.workers)


def check_first_step(optimizer: DistributedBase, variables: Sequence[keras.Variable]) -> None:
    """Compares the weights that an optimizer updates before it does so first: see `first_step`."""
    first_step.check(optimizer, variables, of_variables)


def of_variables(variables: Sequence[keras.Variable]) -> list[int]:
    """A 64-bit number for the value of each variable."""
    return fingerprints([variable.value for variable in variables])
