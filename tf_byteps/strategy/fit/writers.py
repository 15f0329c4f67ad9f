"""Which worker writes the files of a training: worker 0."""

from collections.abc import Callable
from typing import Any

import keras

from tf_byteps.exchange.strategies import is_ours
from tf_byteps.tables import layout as layouts


def trains_together(model: keras.Model | None) -> Any:
    """Whether a model is a `BytePSStrategy`'s.

    Args:
        model: a callback's.
    """
    return is_ours(getattr(model, "distribute_strategy", None))


def leaves_files_to_worker_0(model: keras.Model | None) -> Any:
    """Whether this worker writes no files of a model's callbacks.

    Args:
        model: a callback's.
    """
    strategy = getattr(model, "distribute_strategy", None)
    return is_ours(strategy) and not strategy.extended.should_checkpoint


def on_worker_0(original: Callable[..., Any], self: Any, *args: object, **kwargs: object) -> None:
    """Replaces a method of a callback that writes files, or removes them.

    Args:
        original: the method.
        self: the callback.
        *args: of the method.
        **kwargs: of the method.
    """
    if not leaves_files_to_worker_0(self.model):
        original(self, *args, **kwargs)


def take_part(model: keras.Model) -> None:
    """Takes part in what worker 0 exchanges while it saves a model.

    Args:
        model: the `keras.Model`.
    """
    if layouts.spread_variables(model):
        from tf_byteps.tables import saving as tables  # imports TensorFlow

        with tables.together(model, None):
            pass
