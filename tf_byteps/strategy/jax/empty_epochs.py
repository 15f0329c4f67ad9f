"""A training whose first epoch has no batch: the rest of one that was interrupted at its very end.

Keras on TensorFlow ends such an epoch without logs. On JAX it reads the logs of a step that there
has not been, which is a `NameError`. Here it gets `NO_LOGS` in their place.

Only an input whose length Keras does not know comes so far: an interrupted training may have taken
all of its batches before it knew that there were no more.
"""

import functools
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import keras

from tf_byteps.private.keras_jax import JAXTrainer
from tf_byteps.types import Logs
from tf_byteps.wrapping import Change, wrap_all

#: What Keras takes for the logs of the step that there has not been. It has this very object.
NO_LOGS: Mapping[str, Any] = types.MappingProxyType({})

_before_first_step: weakref.WeakSet[Any] = weakref.WeakSet()  # models in `fit`


@functools.cache
def install() -> None:
    """Makes the changes, once per process."""
    wrap_all(changes())


def changes() -> list[Change]:
    """Each an owner, the name of its attribute, and what replaces that."""
    return [
        (JAXTrainer, "_symbolic_build", _symbolic_build),
        (JAXTrainer, "make_train_function", _make_train_function),
        (keras.callbacks.CallbackList, "on_train_batch_end", _end_batch),
    ]


def _symbolic_build(
    original: Callable[..., Any], self: Any, iterator: Any = None, data_batch: Any = None
) -> None:
    try:
        original(self, iterator, data_batch)
    except StopIteration:
        pass  # no batch says for what to build metrics, and none will need them


def _make_train_function(original: Callable[..., Any], self: Any, force: bool = False) -> None:
    """`fit` calls it before its first epoch."""
    before = self.train_function
    original(self, force)
    _before_first_step.add(self)
    if self.train_function is not before:
        self.train_function = _with_logs(self, self.train_function)


def _with_logs(model: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A train function that has logs, too, if the input ends before the first step of a `fit`."""

    def call(state: Any, iterator: Any) -> Any:
        try:
            result = function(state, iterator)
        except StopIteration:
            if model in _before_first_step:
                return NO_LOGS, state
            raise
        _before_first_step.discard(model)
        return result

    return call


def _end_batch(
    original: Callable[..., Any], self: Any, batch: int, logs: Logs | Mapping[str, Any] = None
) -> None:
    if logs is NO_LOGS:
        raise StopIteration  # as the train function would have: Keras ends the epoch
    original(self, batch, logs)
