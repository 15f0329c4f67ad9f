"""What the optimizers of `tf_byteps.keras.optimizers` put before Keras's own."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_byteps.gradients import row_updates
from tf_byteps.gradients.replica import in_our_replica
from tf_byteps.private.keras import BaseOptimizer

Variable = keras.Variable | tf.Variable
Gradient = tf.Tensor | tf.IndexedSlices


class ClipsRows:
    """A mixin for an optimizer that keeps gradients of rows when it clips them."""

    def _clip_gradients(self: Any, gradients: Sequence[Gradient | None]) -> list[Any]:
        if in_our_replica():  # reduced and clipped so by the strategy
            return super()._clip_gradients(gradients)  # pyright: ignore[reportAttributeAccessIssue]
        return row_updates.clip(BaseOptimizer._clip_gradients, self, gradients)


class UpdatesRows(ClipsRows):
    """A mixin before one of Keras's optimizers."""

    adds_up_rows = True  # before they are clipped, too: see `row_updates.clip`

    def update_step(
        self: Any, gradient: Gradient, variable: Variable, learning_rate: tf.Tensor | float
    ) -> None:
        """Updates a weight, only the rows of the gradient if it has rows. Keras calls it."""
        if not isinstance(gradient, tf.IndexedSlices):
            super().update_step(gradient, variable, learning_rate)  # pyright: ignore[reportAttributeAccessIssue]
            return
        rate = self._rate_of_step(tf.cast(learning_rate, variable.dtype))
        number = self._get_variable_index(variable)
        states = [states[number] for states in self._states()]
        row_updates.update_rows(
            lambda *rows: self._updated(rate, *rows), gradient, [variable, *states]
        )

    def _rate_of_step(self, rate: tf.Tensor) -> tf.Tensor:
        """The learning rate, with what else the optimizer multiplies all numbers of a step by.

        Servers get it as the rate of a table that they update.
        """
        return rate

    def _states(self) -> Sequence[Any]:
        """Lists of the states of all weights, in the order of the arguments of `_updated`."""
        raise NotImplementedError

    def _updated(
        self, rate: tf.Tensor, gradient: tf.Tensor, weights: tf.Tensor, *states: tf.Tensor
    ) -> Sequence[tf.Tensor]:
        """New rows of the weights and of each state, from those of the gradient."""
        raise NotImplementedError
