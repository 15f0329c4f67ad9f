"""Callbacks of tf_byteps among those that `fit` is given."""

from collections.abc import Sequence
from typing import Any

import keras

from tf_byteps.strategy.fit import callbacks


def added(
    given: Any,
    model: keras.Model,
    before: Sequence[keras.callbacks.Callback],
    behind: Sequence[keras.callbacks.Callback],
) -> Any:
    """The callbacks of a training with some of tf_byteps.

    Args:
        given: what `fit` takes: a list, one callback, a `CallbackList` or `None`.
        model: that is trained.
        before: come before the given ones.
        behind: come behind them.

    Returns:
        A list, or the `CallbackList`, to which they are added.
    """
    if not isinstance(given, keras.callbacks.CallbackList):
        return [*before, *callbacks.flat(given), *behind]
    for callback in [*before, *behind]:
        callback.set_model(model)
    given.callbacks[:] = [*before, *given.callbacks, *behind]
    return given
