"""The state of a Keras model, on TensorFlow or on JAX."""

import contextlib
from typing import TYPE_CHECKING, Any

import keras

from tf_byteps.elastic import frameworks
from tf_byteps.elastic.variables import VariablesState
from tf_byteps.exchange.optimizers import optimizers_of, table_optimizers_of
from tf_byteps.strategy.fit import framework, statistics

if TYPE_CHECKING:
    from tf_byteps.elastic.interface import Rejoining

_TRACED = ("train_function", "test_function", "predict_function")


class KerasState(VariablesState):
    """A Keras model with its optimizer, and Python values.

    Where the model's `BytePSStrategy` makes local steps with a quorum, nobody goes back to a
    commit: those that are left keep what they have trained, and meet. See docs/elastic.md.

    Args:
        model: a `keras.Model` whose shapes are known: made with `keras.Input`, or built.
        optimizer: a `keras.optimizers.Optimizer`. Default: the one that the model is compiled with.
        **values: see `ObjectState`.

    Attributes:
        model: the model.
        optimizer: the optimizer.

    Raises:
        ValueError: the model is not built, so that it has no variables yet.

    Example:

    ```python
    state = tf_byteps.elastic.KerasState(model, epoch=0, batch=0)

    @tf_byteps.elastic.run
    def train(state):
        while state.epoch < 10:
            train_one_epoch(state.model)
            state.epoch += 1
            state.commit()

    train(state)
    ```
    """

    def __init__(
        self, model: keras.Model, optimizer: keras.optimizers.Optimizer | None = None, **values: Any
    ) -> None:
        if not all(layer.built for layer in model._flatten_layers()):
            raise ValueError(
                f"the model {model.name!r} has no variables yet: give it a keras.Input, or call "
                "model.build(input_shape), before it becomes part of an elastic state"
            )
        self.model = model
        self.optimizer = model.optimizer if optimizer is None else optimizer
        if self.optimizer is not None and not self.optimizer.built:
            strategy = getattr(model, "distribute_strategy", None)
            with contextlib.nullcontext() if strategy is None else strategy.scope():
                self.optimizer.build(model.trainable_variables)
        self._known_rejoining: Rejoining | None = None
        super().__init__(frameworks.of_keras(), **values)

    def _rejoining(self) -> "Rejoining | None":
        """How a model goes on whose workers do not go back. `fit` may give it its strategy."""
        if self._known_rejoining is None:
            self._known_rejoining = self._framework.rejoining(self.model)
        return self._known_rejoining

    @property
    def goes_back(self) -> bool:
        """See `State`."""
        return self._rejoining() is None

    def variables(self) -> list[Any]:
        """The model's and the optimizers', as they are now.

        Returns:
            A list.
        """
        found = [*self.model.variables, *(self.optimizer.variables if self.optimizer else [])]
        for optimizer in table_optimizers_of(self.model):
            found += optimizer.variables
        return list({id(each): each for each in found}.values())

    def save(self) -> None:
        """See `State.save`."""
        self._framework.before_reading(self.model)
        super().save()

    def commit(self) -> None:
        """See `State.commit`. Within an epoch of a `BytePSStrategy`, gradients that the optimizer
        has accumulated are averaged first: those of a worker that is lost later are not.

        With a quorum it copies nothing, and is no collective."""
        if self._rejoining() is not None:
            self.check_host_updates()
            return
        if statistics.is_of_own_rows(self.model):
            framework.current().average_accumulated(optimizers_of(self.model))
        super().commit()

    def check_host_updates(self) -> None:
        """See `State.check_host_updates`. With a quorum it is no collective."""
        rejoining = self._rejoining()
        if rejoining is None:
            super().check_host_updates()
        else:
            rejoining.look()

    def restore(self) -> None:
        """See `State.restore`. With a quorum the state stays as it is."""
        if self.goes_back:
            super().restore()

    def sync(self) -> None:
        """See `State.sync`. With a quorum those that stay keep their own."""
        rejoining = self._rejoining()
        if rejoining is None:
            super().sync()
        else:
            rejoining.sync(self)

    def on_reset(self) -> None:
        """See `State.on_reset`. What was traced for other workers is forgotten."""
        statistics.forget(self.model)
        for name in _TRACED:
            # A step that exchanges nothing may be used again: see `retracing.keep_traces`.
            if self.goes_back or name != "train_function":
                setattr(self.model, name, None)
        super().on_reset()
