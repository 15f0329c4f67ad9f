"""Callbacks of tf_byteps among those that `fit` is given."""

import copy
from collections.abc import Sequence
from typing import Any

import keras

Given = keras.callbacks.Callback | keras.callbacks.CallbackList | Sequence[Any] | None


def flat(callbacks: Given) -> Any:
    """The list of the callbacks that `fit` was given."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks.callbacks
    return keras.tree.flatten(callbacks or [])


def added(
    given: Given,
    model: keras.Model,
    before: Sequence[keras.callbacks.Callback],
    behind: Sequence[keras.callbacks.Callback],
) -> Any:
    """The callbacks of a training with some of tf_byteps.

    Args:
        given: what `fit` takes: a list, one callback, a `CallbackList` or `None`. It stays as it
            is: the program may use it again, also with another model.
        model: that is trained.
        before: come before the given ones.
        behind: come behind them.

    Returns:
        A list, or a `CallbackList` with the same callbacks and more.
    """
    together = [*before, *flat(given), *behind]
    if not isinstance(given, keras.callbacks.CallbackList):
        return together
    for callback in [*before, *behind]:
        callback.set_model(model)
    container = copy.copy(given)
    container.callbacks = together
    return container
