"""What a worker goes back to when another one is lost, and gives to those that are new."""

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from tf_byteps import _engine, runtime
from tf_byteps.exchange.objects import broadcast_object
from tf_byteps.exchange.optimizers import optimizers_of
from tf_byteps.gradients import accumulators
from tf_byteps.ops import Max, push_pull
from tf_byteps.strategy.fit import statistics
from tf_byteps.training import initial_values
from tf_byteps.training.variables import tf_variable

_TRACED = ("train_function", "test_function", "predict_function")


class HostsUpdatedInterrupt(Exception):
    """The workers are about to change; `run` catches it on all of them at the same commit."""


class State:
    """What all states have in common. A subclass says how to `save`, `restore` and `sync`.

    Example: see `KerasState`.
    """

    if TYPE_CHECKING:  # the values are attributes

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    #: Whether `restore` goes back to the last commit.
    goes_back = True

    def __init__(self) -> None:
        self._reset_callbacks = []

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Has functions called on each worker that stays, when the workers have changed.

        `tf_byteps.size()` is the new number then, and what the functions change on rank 0 reaches
        all workers, new ones too, if it is part of the state.

        Args:
            callbacks: a list of functions without arguments.

        Example:

        >>> def scale():
        ...     state.optimizer.learning_rate = 0.01 * tf_byteps.size()
        >>> state.register_reset_callbacks([scale])
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Called by `run` when the workers have changed, before `sync`."""
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Keeps the state as it is now, in memory, and lets the workers change if they are to.

        A collective: all workers call it at the same step. It copies all of the state: once every
        some steps is enough, as the steps since the last commit are done again after a loss.

        Raises:
            HostsUpdatedInterrupt: on all workers, if some are to come or to leave.
        """
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Lets the workers change if they are to, without a commit. A collective.

        Raises:
            HostsUpdatedInterrupt: see `commit`.
        """
        if not runtime.config().elastic:
            return
        reason = runtime.coming_change()
        if runtime.size() > 1:
            wanted = tf.constant(int(bool(reason)))
            if push_pull(wanted, op=Max, name="elastic/change") and not reason:
                reason = "another worker has heard that the workers are about to change"
        if reason:
            raise HostsUpdatedInterrupt(reason)

    def save(self) -> None:
        """Keeps the state as it is now, in memory. Communicates with nobody."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to what was saved last. Communicates with nobody."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives all workers rank 0's state, and saves it. A collective, called by `run`."""
        raise NotImplementedError


class ObjectState(State):
    """Python values that belong to a training: they are attributes of this object.

    Args:
        **values: names and first values, of the kinds that `broadcast_object` sends.

    Raises:
        ValueError: a value has the name of something that a state has already.

    Example:

    >>> state = tf_byteps.elastic.ObjectState(epoch=0, best=None)
    >>> state.epoch += 1
    >>> state.commit()
    """

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self._names = sorted(values)
        for name, value in values.items():
            if hasattr(self, name):
                raise ValueError(f"a state cannot have a value {name!r}: it is a name of its own")
            setattr(self, name, value)
        self._saved: dict[str, Any] = {}
        self.save()

    def save(self) -> None:
        """See `State.save`."""
        self._saved = copy.deepcopy(self._values())

    def restore(self) -> None:
        """See `State.restore`."""
        self._set(copy.deepcopy(self._saved))

    def sync(self) -> None:
        """See `State.sync`."""
        if runtime.size() > 1:
            self._set(broadcast_object(self._values(), 0, name="elastic/values"))
        self.save()

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._names}

    def _set(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)


class TensorFlowState(ObjectState):
    """Variables and Python values.

    Args:
        variables: a list (or other structure) of `tf.Variable` or `keras.Variable`.
        **values: see `ObjectState`.

    Raises:
        ValueError: see `ObjectState`.

    Example:

    >>> state = tf_byteps.elastic.TensorFlowState([weights, bias], step=0)
    """

    def __init__(self, variables: Any, **values: Any) -> None:
        self._variables = tf.nest.flatten(variables)
        self._saved_variables = []
        super().__init__(**values)

    def variables(self) -> list[Any]:
        """All variables of the state.

        Returns:
            A list.
        """
        return self._variables

    def save(self) -> None:
        """See `State.save`.

        Raises:
            tf.errors.UnavailableError: a process is lost. The state that was saved last stays.
        """
        saved = [(each, _numpy(each)) for each in self.variables()]
        # A compiled step on a GPU tells of a loss only after it has changed the variables. Reading
        # them has waited for the GPU, so that the engine knows by now.
        if failure := _engine.worker_failure():
            raise tf.errors.UnavailableError(None, None, failure)
        super().save()
        self._saved_variables = saved

    def restore(self) -> None:
        """See `State.restore`."""
        super().restore()
        for variable, value in self._saved_variables:
            variable.assign(value)

    def sync(self) -> None:
        """See `State.sync`."""
        if runtime.size() > 1:
            named = [(_name(each), tf_variable(each)) for each in self.variables()]
            initial_values.synchronize("variables of the elastic state", named)
        super().sync()


class KerasState(TensorFlowState):
    """A Keras model with its optimizer, and Python values.

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
            with model.distribute_strategy.scope():
                self.optimizer.build(model.trainable_variables)
        super().__init__([], **values)

    def variables(self) -> list[Any]:
        """The model's and the optimizer's, as they are now.

        Returns:
            A list.
        """
        both = [*self.model.variables, *(self.optimizer.variables if self.optimizer else [])]
        return list({id(tf_variable(each)): each for each in both}.values())

    def commit(self) -> None:
        """See `State.commit`. Within an epoch of a `BytePSStrategy`, gradients that the optimizer
        has accumulated are averaged first: those of a worker that is lost later are not."""
        if statistics.is_of_own_rows(self.model):
            accumulators.average(optimizers_of(self.model))
        super().commit()

    def on_reset(self) -> None:
        """See `State.on_reset`. What was traced for other workers is forgotten."""
        statistics.forget(self.model)
        for name in _TRACED:
            setattr(self.model, name, None)
        super().on_reset()


def _numpy(variable: Any) -> np.ndarray:
    return tf_variable(variable).numpy()


def _name(variable: Any) -> str:
    return getattr(variable, "path", variable.name)
