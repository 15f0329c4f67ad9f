"""Keras's progress bar: of workers that train together, rank 0 alone has one.

That of the others would say the same, between its lines. A `ProgbarLogger` among the callbacks that
the user gives shows a bar on each worker that has it.
"""

from collections.abc import Callable
from typing import Any

import keras

from tf_byteps import runtime
from tf_byteps.wrapping import Change


def change(trains_together: Callable[[Any], Any]) -> Change:
    """The change to Keras.

    Args:
        trains_together: tells of a `keras.Model` whether its workers train together.
    """

    def init(
        original: Callable[..., Any],
        self: Any,
        callbacks: Any = None,
        add_history: bool = False,
        add_progbar: bool = False,
        model: Any = None,
        **params: Any,
    ) -> None:
        if model is not None and _is_another_rank() and trains_together(model):
            add_progbar = False
        original(self, callbacks, add_history, add_progbar, model, **params)

    return keras.callbacks.CallbackList, "__init__", init


def _is_another_rank() -> bool:
    return runtime.is_initialized() and runtime.rank() != 0
