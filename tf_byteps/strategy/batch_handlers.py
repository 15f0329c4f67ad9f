"""What a callback does at the begin and the end of a batch."""

from collections.abc import Callable, Iterable
from typing import Any

import keras

from tf_byteps.private.keras import is_default

AT_THE_END = ("on_train_batch_end", "on_batch_end")
_ALL = ("on_train_batch_begin", "on_batch_begin", *AT_THE_END)
_SAVE_PERHAPS_AFTER_EPOCHS = (keras.callbacks.ModelCheckpoint, keras.callbacks.BackupAndRestore)


def own_handlers(
    callback: keras.callbacks.Callback, names: Iterable[str] = _ALL
) -> list[Callable[..., Any]]:
    """The methods by which a callback does something there; it has them all, most do nothing.

    Args:
        callback: a `keras.callbacks.Callback`.
        names: of the methods in question.
    """
    handlers = [getattr(callback, name) for name in names]
    return [h for h in handlers if not is_default(h) and not _saves_epochs(callback, h)]


def is_of(handler: Callable[..., Any], *owners: type) -> bool:
    """Whether a handler is the one of one of these classes, and not of a subclass."""
    function = getattr(handler, "__func__", None)
    return function in [owner.on_train_batch_end for owner in owners]


def _saves_epochs(callback: keras.callbacks.Callback, handler: Callable[..., Any]) -> bool:
    return is_of(handler, *_SAVE_PERHAPS_AFTER_EPOCHS) and (
        getattr(callback, "save_freq", None) == "epoch"
    )
