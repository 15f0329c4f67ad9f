"""`model.stop_training`, which all workers must follow at the same step (protocol rule 26).

Keras reads it after every batch. If one worker left the loop alone, the others would wait for its
gradients. So within an epoch the attribute shows what the workers have agreed on; what is assigned
to it, by a callback, a signal handler or another thread, is kept until they ask each other next:
where an epoch begins and ends, and after every batch if there is a callback that may stop there.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from tf_byteps import runtime
from tf_byteps.exchange import host
from tf_byteps.strategy import batch_handlers

_STOPPING = keras.callbacks.TerminateOnNaN
# Model -> what its workers have agreed on, while it is in an epoch.
_agreed = weakref.WeakKeyDictionary()


def attribute() -> Any:
    """The property that replaces `stop_training` of Keras's models."""

    def get(model: keras.Model) -> Any:
        # `_agreed` is empty but for trainings under a strategy.
        return _agreed.get(model, _wanted(model)) if _agreed else _wanted(model)

    return property(get, _want)


def _wanted(model: keras.Model) -> Any:
    return model.__dict__.get("stop_training", False)


def _want(model: keras.Model, value: object) -> None:
    model.__dict__["stop_training"] = value


def agree(model: keras.Model) -> None:
    """Lets all workers stop if one wants to. A collective of one small exchange.

    From now on, until `end_epoch`, `model.stop_training` is the same on all workers.

    Args:
        model: a `keras.Model` in an epoch of its training.
    """
    if runtime.size() == 1:
        return
    wanted = np.array(bool(_wanted(model)), np.int32)
    stops = bool(host.exchange_all([wanted], ["stop training"], kind="max")[0])
    _want(model, stops)  # an assignment to the attribute is left out if that shows the same
    _agreed[model] = stops


def end_epoch(model: keras.Model) -> None:
    """Agrees once more, for what is done between epochs. A collective."""
    agree(model)
    forget(model)


def forget(model: keras.Model) -> None:
    """The training has ended, perhaps by an exception within an epoch."""
    _agreed.pop(model, None)


def is_agreed_after_batches(model: keras.Model, callbacks: Sequence[Any]) -> bool:
    """Whether workers ask each other after every batch. Those that make steps at
    their own pace would wait so."""
    strategy = model.distribute_strategy
    has_quorum = getattr(getattr(strategy, "local_steps", None), "quorum", None) is not None
    is_synchronous = getattr(strategy, "staleness", 0) == 0 and not has_quorum
    return is_synchronous and any(map(_may_stop_after_a_batch, callbacks))


def _may_stop_after_a_batch(callback: keras.callbacks.Callback) -> bool:
    """Whether a callback does something after batches, and is not one of Keras's that never stop.

    One of ours that stops there has an attribute `stops_after_batches`.

    Args:
        callback: a `keras.callbacks.Callback`.
    """
    if getattr(callback, "stops_after_batches", False):
        return True
    return not all(map(_never_stops, batch_handlers.own_handlers(callback)))


def _never_stops(handler: Callable[..., Any]) -> Any:
    module = getattr(handler, "__module__", None) or ""
    if module == _STOPPING.__module__:
        return False
    return module.startswith(("keras.src.callbacks.", "tf_byteps."))
