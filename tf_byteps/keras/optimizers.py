"""Optimizers for large embeddings: a step takes time for the rows that it looks up.

A layer such as `keras.layers.Embedding` has a gradient of rows, `tf.IndexedSlices`. Keras's own
optimizers compute with the whole table for it; those here with its rows only. For a dense gradient
each does what the Keras optimizer of its name does. A gradient is dense in a step that XLA
compiles, with `sparse_as_dense`, and with gradient accumulation.

* `Adagrad`: Keras's numbers, bit for bit. With `BytePSStrategy` Keras's own gets this
  automatically.
* `Ftrl`: Keras's numbers for rows that have been looked up. Others keep their initial values, which
  Keras sets to 0 in the first step.
* `RMSprop`, `Adadelta`: averages of a row decay when it is looked up, not in each step.
* `LazySGD`, `LazyAdam`: momentum moves a row when it is looked up, not in each step.
* `RowWiseAdagrad`: one accumulator for each row, as DLRM has it.

Weight decay and moving averages of weights (`weight_decay`, `use_ema`) are of all rows, as in
Keras.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_byteps.gradients import row_updates
from tf_byteps.keras.row_mixins import ClipsRows, Gradient, UpdatesRows, Variable
from tf_byteps.tables.saving import note_state

__all__ = ["Adadelta", "Adagrad", "Ftrl", "LazyAdam", "LazySGD", "RMSprop", "RowWiseAdagrad"]

_registered = keras.saving.register_keras_serializable("tf_byteps")


@_registered
class Adagrad(ClipsRows, keras.optimizers.Adagrad):
    """`keras.optimizers.Adagrad`, which touches the rows of a step only. The numbers are Keras's.

    With `BytePSStrategy`, `keras.optimizers.Adagrad` does so by itself.

    Args:
        *args, **kwargs: those of `keras.optimizers.Adagrad`.

    Example:
        >>> model.compile(tf_byteps.keras.optimizers.Adagrad(0.05), "mse")
    """

    def update_step(
        self, gradient: Gradient, variable: Variable, learning_rate: tf.Tensor | float
    ) -> None:
        """Updates a weight. Keras calls it."""
        row_updates.adagrad(
            keras.optimizers.Adagrad.update_step, self, gradient, variable, learning_rate
        )


@_registered
class Ftrl(UpdatesRows, keras.optimizers.Ftrl):
    """`keras.optimizers.Ftrl`, which touches the rows of a step only.

    A row that was never looked up keeps its initial value. Keras computes all rows anew in each
    step, by which such rows become 0.

    Args:
        *args, **kwargs: those of `keras.optimizers.Ftrl`.

    Example:
        >>> model.compile(tf_byteps.keras.optimizers.Ftrl(0.05), "binary_crossentropy")
    """

    def _states(self) -> Sequence[Any]:
        return self._accumulators, self._linears

    def _updated(
        self, rate: tf.Tensor, gradient: tf.Tensor, weights: tf.Tensor, *states: tf.Tensor
    ) -> Sequence[tf.Tensor]:
        accumulator, linear = states
        power = -self.learning_rate_power
        l2 = self.l2_regularization_strength + self.beta / (2.0 * rate)
        shrunk = gradient + 2 * self.l2_shrinkage_regularization_strength * weights
        summed = accumulator + tf.square(gradient)
        change = (tf.pow(summed, power) - tf.pow(accumulator, power)) / rate
        linear = linear + (shrunk - change * weights)
        quadratic = tf.pow(summed, power) / rate + 2 * l2
        l1 = self.l1_regularization_strength
        clipped = tf.clip_by_value(linear, -l1, l1)
        return (clipped - linear) / quadratic, summed, linear


@_registered
class RMSprop(UpdatesRows, keras.optimizers.RMSprop):
    """`keras.optimizers.RMSprop`, which touches the rows of a step only.

    The averages of a row decay when it is looked up. In Keras they decay in each step.

    Args:
        *args, **kwargs: those of `keras.optimizers.RMSprop`.

    Example:
        >>> model.compile(tf_byteps.keras.optimizers.RMSprop(1e-3), "mse")
    """

    def _states(self) -> Sequence[Any]:
        states = (self._velocities, self._momentums, self._average_gradients)
        return [each for each in states if each]

    def _updated(
        self, rate: tf.Tensor, gradient: tf.Tensor, weights: tf.Tensor, *states: tf.Tensor
    ) -> Sequence[tf.Tensor]:
        rho = self.rho
        velocity, *others = states
        velocity = rho * velocity + (1 - rho) * tf.square(gradient)
        new = [velocity]
        if self.centered:
            average = rho * others[-1] + (1 - rho) * gradient
            step = rate * gradient / tf.sqrt(velocity - tf.square(average) + self.epsilon)
        else:
            average = None
            step = rate * gradient / tf.sqrt(velocity + self.epsilon)
        if self.momentum > 0:
            step = self.momentum * others[0] + step
            new.append(step)
        if average is not None:
            new.append(average)
        return [weights - step, *new]


@_registered
class Adadelta(UpdatesRows, keras.optimizers.Adadelta):  # pyright: ignore[reportIncompatibleMethodOverride]
    """`keras.optimizers.Adadelta`, which touches the rows of a step only.

    The averages of a row decay when it is looked up. In Keras they decay in each step.

    Args:
        *args, **kwargs: those of `keras.optimizers.Adadelta`.

    Example:
        >>> model.compile(tf_byteps.keras.optimizers.Adadelta(1.0), "mse")
    """

    def _states(self) -> Sequence[Any]:
        return self._accumulated_grads, self._accumulated_delta_vars

    def _updated(
        self, rate: tf.Tensor, gradient: tf.Tensor, weights: tf.Tensor, *states: tf.Tensor
    ) -> Sequence[tf.Tensor]:
        rho = self.rho
        squares, deltas = states
        squares = rho * squares + (1 - rho) * tf.square(gradient)
        delta = -(tf.sqrt(deltas + self.epsilon) * gradient / tf.sqrt(squares + self.epsilon))
        deltas = rho * deltas + (1 - rho) * tf.square(delta)
        return weights + rate * delta, squares, deltas


@_registered
class LazySGD(UpdatesRows, keras.optimizers.SGD):
    """`keras.optimizers.SGD`, whose momentum moves a row only when it is looked up.

    Keras's momentum goes on moving a row in steps that do not look it up, for which each step
    computes with the whole table. Without momentum both are the same.

    Args:
        *args, **kwargs: those of `keras.optimizers.SGD`.

    Example:
        >>> model.compile(tf_byteps.keras.optimizers.LazySGD(0.1, momentum=0.9), "mse")
    """

    def _states(self) -> Sequence[Any]:
        return [self.momentums] if self.momentum else []

    def _updated(
        self, rate: tf.Tensor, gradient: tf.Tensor, weights: tf.Tensor, *states: tf.Tensor
    ) -> Sequence[tf.Tensor]:
        if not states:
            return [weights - gradient * rate]
        momentum = tf.cast(self.momentum, weights.dtype)
        moved = states[0] * momentum - gradient * rate
        if self.nesterov:
            return weights + (moved * momentum - gradient * rate), moved
        return weights + moved, moved


@_registered
class LazyAdam(UpdatesRows, keras.optimizers.Adam):
    """`keras.optimizers.Adam`, whose moments of a row change only when it is looked up.

    Keras's Adam goes on moving a row in steps that do not look it up, for which each step computes
    with the whole table. The correction of the bias follows the steps of the training in both.

    Args:
        *args, **kwargs: those of `keras.optimizers.Adam`.

    Example:
        >>> model.compile(tf_byteps.keras.optimizers.LazyAdam(1e-3), "mse")
    """

    def _states(self) -> Sequence[Any]:
        states = [self._momentums, self._velocities]
        return [*states, self._velocity_hats] if self.amsgrad else states

    def _rate_of_step(self, rate: tf.Tensor) -> tf.Tensor:
        steps: Any = self.iterations + 1
        step = tf.cast(steps, rate.dtype)
        beta_1, beta_2 = (tf.cast(beta, rate.dtype) for beta in (self.beta_1, self.beta_2))
        return rate * tf.sqrt(1 - tf.pow(beta_2, step)) / (1 - tf.pow(beta_1, step))

    def _updated(
        self, rate: tf.Tensor, gradient: tf.Tensor, weights: tf.Tensor, *states: tf.Tensor
    ) -> Sequence[tf.Tensor]:
        momentum, velocity, *largest = states
        momentum = momentum + (gradient - momentum) * (1 - self.beta_1)
        velocity = velocity + (tf.square(gradient) - velocity) * (1 - self.beta_2)
        largest = [tf.maximum(each, velocity) for each in largest]
        divisor = tf.sqrt((largest or [velocity])[0]) + self.epsilon
        return [weights - momentum * rate / divisor, momentum, velocity, *largest]


@_registered
class RowWiseAdagrad(UpdatesRows, keras.optimizers.Optimizer):
    """Adagrad with one accumulator for each row: `1 / width` of Adagrad's memory for an embedding.

    For a row `w` with the gradient `g`: `a += mean(g²)`, `w -= learning_rate * g / (sqrt(a) +
    epsilon)`. So do DLRM and FBGEMM (Naumov et al., 2019, arXiv:1906.00091). The rows of a weight
    with one axis are its elements, for which that is Adagrad.

    Args:
        learning_rate: a float, a schedule of `keras.optimizers.schedules`, or a function.
        initial_accumulator_value: where accumulators begin, at least 0.
        epsilon: added to the square root, so that nothing is divided by 0.
        name: the optimizer's name.
        **kwargs: those of `keras.optimizers.Optimizer`.

    Raises:
        ValueError: `initial_accumulator_value` is negative.

    Example:
        >>> model.compile(tf_byteps.keras.optimizers.RowWiseAdagrad(0.05), "mse")
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        initial_accumulator_value: float = 0.0,
        epsilon: float = 1e-8,
        name: str = "row_wise_adagrad",
        **kwargs: object,
    ) -> None:
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        if initial_accumulator_value < 0:
            raise ValueError(
                "initial_accumulator_value must be at least 0, got "
                f"{initial_accumulator_value}: it is where sums of squares begin"
            )
        self.initial_accumulator_value = initial_accumulator_value
        self.epsilon = epsilon

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Makes an accumulator for each row of each weight. Keras calls it."""
        if self.built:
            return
        super().build(variables)
        self._accumulators = [self._accumulator(variable) for variable in variables]

    def _accumulator(self, variable: keras.Variable) -> keras.Variable | None:
        if self._overwrite_variable_with_gradient(variable):
            return None
        rank = len(variable.shape)
        initializer: Any = keras.initializers.Constant(self.initial_accumulator_value)
        accumulator = self.add_variable(
            shape=(variable.shape[0], *[1] * (rank - 1)) if rank else (),
            initializer=initializer,
            dtype=variable.dtype,
            name=f"{variable.path.replace('/', '_')}_accumulator",
        )
        return note_state(accumulator, variable)

    def update_step(
        self, gradient: Gradient, variable: Variable, learning_rate: tf.Tensor | float
    ) -> None:
        """Updates a weight. Keras calls it."""
        if isinstance(gradient, tf.IndexedSlices):
            super().update_step(gradient, variable, learning_rate)
            return
        rate = tf.cast(learning_rate, variable.dtype)
        gradient = tf.cast(gradient, variable.dtype)
        accumulator: Any = self._accumulators[self._get_variable_index(variable)]
        weights, summed = self._updated(rate, gradient, variable, accumulator)
        self.assign(variable, weights)
        self.assign(accumulator, summed)

    def _states(self) -> Sequence[Any]:
        return [self._accumulators]

    def _updated(
        self, rate: tf.Tensor, gradient: tf.Tensor, weights: tf.Tensor, *states: tf.Tensor
    ) -> Sequence[tf.Tensor]:
        (accumulator,) = states
        squares = tf.square(gradient)
        within = list(range(1, len(gradient.shape)))
        summed = accumulator + (
            tf.reduce_mean(squares, within, keepdims=True) if within else squares
        )
        return weights - rate * gradient / (tf.sqrt(summed) + self.epsilon), summed

    def get_config(self) -> dict[str, Any]:
        """The arguments that make an equal optimizer."""
        return {
            **super().get_config(),
            "initial_accumulator_value": self.initial_accumulator_value,
            "epsilon": self.epsilon,
        }
