"""Distributed optimizers on TensorFlow. Where the reduction happens:

* in the outermost `apply`, before clipping and before a `LossScaleOptimizer` looks for overflow;
* with gradient accumulation, in the step that updates: pushed once for each update. Within a
  `LossScaleOptimizer` workers agree in the other steps whether the gradients of all are finite
  (protocol rule 27).

Within `BytePSStrategy` the strategy reduces, and this class does nothing. With
`BYTEPS_ENABLE_ASYNC=1` workers exchange changes of weights instead: see `asynchronous`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from tf_byteps.gradients import updates
from tf_byteps.gradients.accumulation import reduce_if_updating
from tf_byteps.gradients.overwriting import reduce_overwriting
from tf_byteps.gradients.reducing import finite_everywhere
from tf_byteps.gradients.replica import in_our_replica
from tf_byteps.keras import asynchronous, first_step
from tf_byteps.keras.distributed import DistributedBase, innermost
from tf_byteps.ops.fingerprints import fingerprints as of_tensors
from tf_byteps.types import Gradient, Variable

if TYPE_CHECKING:
    _LossScaleOptimizer = keras.optimizers.LossScaleOptimizer
else:  # the class that is given comes behind it
    _LossScaleOptimizer = object


_check_first_step = tf.autograph.experimental.do_not_convert(first_step.check)


class Distributed(DistributedBase):
    """What is put before an optimizer's own class."""

    def apply(
        self, grads: list[Gradient], trainable_variables: list[Variable] | None = None
    ) -> Any:
        """See `keras.optimizers.Optimizer.apply`; reduces the gradients over all workers first."""
        if self._strategy_reduces() or updates.current() is not None:
            return super().apply(grads, trainable_variables)
        variables = list(trainable_variables or self._trainable_variables)
        _check_first_step(self, variables, fingerprints)
        if asynchronous.is_on():
            if innermost(self) is not self:  # which exchanges, in a step that updates
                return super().apply(grads, trainable_variables)
            update = functools.partial(super().apply, grads, trainable_variables)
            return asynchronous.apply(self, update, variables)
        with updates.updating(self, variables) as update:
            if not innermost(self).gradient_accumulation_steps:
                grads = update.reduce_once(grads, self._reduced)
            return super().apply(grads, trainable_variables)

    def _backend_apply_gradients(
        self, grads: list[Gradient], trainable_variables: list[Variable]
    ) -> Any:
        if asynchronous.is_on():  # this worker's own
            return super()._backend_apply_gradients(grads, trainable_variables)
        with updates.updating(self, trainable_variables):
            return super()._backend_apply_gradients(grads, trainable_variables)

    def _overwrite_variables_directly_with_gradients(
        self, grads: list[Gradient], variables: list[Variable]
    ) -> Any:
        if updates.current() is not None and not in_our_replica():
            grads = reduce_overwriting(grads, variables, self.byteps_reduction.scope)
        return super()._overwrite_variables_directly_with_gradients(grads, variables)

    def _clip_gradients(self, grads: list[Gradient]) -> Any:
        # The first thing that Keras does with accumulated gradients.
        update = updates.current()
        if update is not None and not in_our_replica():
            grads = update.reduce_once(grads, self._reduced)
        return super()._clip_gradients(grads)

    def _strategy_reduces(self) -> bool:
        if in_our_replica():
            self._refuse_arguments()
            return True
        strategy = tf.distribute.get_strategy()
        if strategy.num_replicas_in_sync > 1:
            raise RuntimeError(
                f"DistributedOptimizer has one replica in each process, but {type(strategy)} has "
                f"{strategy.num_replicas_in_sync}: train without it, or with BytePSStrategy"
            )
        return False


class DistributedLossScale(Distributed, _LossScaleOptimizer):
    """What is put before the class of a `LossScaleOptimizer`."""

    def check_finite(self, grads: list[Gradient]) -> Any:
        update = updates.current()
        if update is None or in_our_replica():
            return super().check_finite(grads)
        if update.reduced:
            return self._check_reduced(grads)
        finite, update.reduced_of = reduce_if_updating(
            self,
            grads,
            update.variables,
            super().check_finite,
            self._reduced_and_checked,
            self.byteps_reduction.workers,
        )
        return finite

    def _check_reduced(self, grads: list[Gradient]) -> Any:
        finite = super().check_finite(grads)
        # Without local gradients they, and so the answer, are the same on all workers.
        reduction = self.byteps_reduction
        return finite_everywhere(finite, reduction.workers) if reduction.has_local else finite

    def _reduced_and_checked(
        self, grads: list[Gradient], variables: list[Variable]
    ) -> tuple[Any, Any]:
        grads = self._reduced(grads, variables)
        return grads, self._check_reduced(grads)


def fingerprints(variables: Sequence[Variable]) -> list[int]:
    """A 64-bit number for the value that each variable has now, while a step is traced, too."""
    with tf.init_scope():
        return of_tensors([tf.convert_to_tensor(variable) for variable in variables])
