"""`fit` of models with a distributed optimizer on JAX."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

import keras

from tf_byteps import runtime
from tf_byteps.jax.errors import raise_late_failure
from tf_byteps.keras.distributed import DistributedBase, distributed_of
from tf_byteps.keras.jax.optimizer import check_first_step
from tf_byteps.private.keras_jax import JAXTrainer
from tf_byteps.strategy.fit import own_callbacks
from tf_byteps.strategy.jax import failures, scopes, start_scheduling
from tf_byteps.types import Logs
from tf_byteps.wrapping import Change

_SESSION = "_byteps_session"  # of a model: the size and rank that its compiled step was made for


def changes() -> list[Change]:
    """Each an owner, the name of its attribute, and what replaces that."""
    return [
        (JAXTrainer, "make_train_function", _make_train_function),
        (JAXTrainer, "train_on_batch", _train_on_batch),
    ]


def fit(
    optimizers: Sequence[DistributedBase],
    original: Callable[..., object],
    model: keras.Model,
    *args: object,
    **kwargs: object,
) -> object:
    """Calls Keras's `fit`, whose errors are a sentence and leave the weights.

    Args:
        optimizers: of the model, those that are distributed.
        original: Keras's `fit`, which takes what follows.
    """
    if not _has_others():
        return original(model, *args, **kwargs)
    keep = failures.Keep()
    call = inspect.signature(original).bind(model, *args, **kwargs)
    given = call.arguments.get("callbacks")
    call.arguments["callbacks"] = own_callbacks.added(
        given, model, [_RaiseLateFailure()], [_CheckFirstStep(optimizers), keep]
    )
    with failures.in_a_sentence(keep):
        return original(*call.args, **call.kwargs)


class _RaiseLateFailure(keras.callbacks.Callback):
    """Before others save what an epoch has made: on a GPU its last steps may have failed."""

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        raise_late_failure()


class _CheckFirstStep(keras.callbacks.Callback):
    """Behind those that broadcast: a step that is compiled has no values to compare."""

    def __init__(self, optimizers: Sequence[DistributedBase]) -> None:
        super().__init__()
        self._optimizers = optimizers

    def on_train_begin(self, logs: Logs = None) -> None:
        _check(self.model, self._optimizers)


def _check(model: keras.Model | None, optimizers: Sequence[DistributedBase]) -> None:
    for optimizer in optimizers:
        own = optimizer._trainable_variables or model.trainable_variables
        check_first_step(optimizer, own)


def _train_on_batch(
    original: Callable[..., object], self: keras.Model, *args: object, **kwargs: object
) -> object:
    optimizers = distributed_of(self)
    if not optimizers or scopes.adopt(self) is not None or not _has_others():
        return original(self, *args, **kwargs)
    with failures.in_a_sentence():
        if self.built:
            _check(self, optimizers)
        return original(self, *args, **kwargs)


def _make_train_function(
    original: Callable[..., object], self: keras.Model, force: bool = False
) -> None:
    if not distributed_of(self) or scopes.adopt(self) is not None or not _has_others():
        original(self, force)
        return
    session = [runtime.size(), runtime.rank()]
    force = force or self.__dict__.get(_SESSION) != session
    self.__dict__[_SESSION] = session
    has_own = "train_step" in self.__dict__
    step = self.train_step
    self.__dict__["train_step"] = start_scheduling.started_first(step)
    try:
        original(self, force)
    finally:
        del self.__dict__["train_step"]
        if has_own:
            self.__dict__["train_step"] = step


def _has_others() -> bool:
    return runtime.is_initialized() and runtime.size() > 1
