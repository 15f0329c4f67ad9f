"""TensorFlow, as `strategy.fit` needs it."""

from collections.abc import Sequence
from typing import Any

import keras

from tf_byteps.gradients import accumulating, accumulators
from tf_byteps.ops.fingerprints import fingerprints
from tf_byteps.strategy.fit.foreign_optimizers import is_foreign
from tf_byteps.strategy.fit.framework import Framework
from tf_byteps.strategy.step import local_steps, piece_steps


class TensorFlow(Framework):
    """TensorFlow's part of `fit`."""

    def fingerprints(self, variables: Sequence[Any]) -> list[int]:
        return fingerprints([variable.value for variable in variables])

    def last_rows(self, model: keras.Model) -> int | None:
        return piece_steps.last_rows(model)

    def is_foreign(self, optimizer: keras.optimizers.Optimizer) -> bool:
        return is_foreign(optimizer)

    def finish_local_steps(self, model: keras.Model) -> None:
        local_steps.finish(model)

    def makes_local_steps(self, model: keras.Model) -> bool:
        return local_steps.settings_of(model) is not None

    def own_state(self, model: keras.Model, optimizers: Sequence[Any]) -> list[Any]:
        return local_steps.inner_state(model, list(optimizers))

    def average_accumulated(self, optimizers: Sequence[Any]) -> None:
        accumulators.average(optimizers)

    def has_accumulated(self, optimizers: Sequence[Any]) -> bool:
        return accumulating.are_own(optimizers)
