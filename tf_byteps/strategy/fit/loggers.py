"""Keras's callbacks that log a training: those of other workers than 0 run, and write nothing.

So a subclass may override any of their methods, and call Keras's.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import keras

from tf_byteps.strategy.fit.writers import leaves_files_to_worker_0, on_worker_0, take_part
from tf_byteps.types import Logs
from tf_byteps.wrapping import Change

_TRACES = "_byteps_traces"  # of a TensorBoard that writes nothing: what it would trace else


def changes() -> list[Change]:
    """Each an owner, the name of its attribute, and what replaces that."""
    callbacks = keras.callbacks
    return [
        (callbacks.CSVLogger, "on_train_begin", _open),
        # Also where a subclass has opened a file of its own.
        (callbacks.CSVLogger, "on_epoch_end", on_worker_0),
        (callbacks.RemoteMonitor, "on_epoch_end", on_worker_0),
        (callbacks.TensorBoard, "set_model", _set_model),
        (callbacks.TensorBoard, "_log_embeddings", _log_embeddings),
    ]


def choose(callback: keras.callbacks.Callback, model: keras.Model) -> None:
    """Lets a `TensorBoard` write on worker 0 only. Other callbacks choose when training begins.

    Args:
        callback: a callback of a training that begins.
        model: the `keras.Model` that trains.
    """
    if not isinstance(callback, keras.callbacks.TensorBoard):
        return
    board: Any = callback
    is_silent = isinstance(board._summary_module, _NoSummaries)
    if leaves_files_to_worker_0(model):
        if not is_silent:
            setattr(board, _TRACES, board._should_trace)
        board._summary_module = _NoSummaries()
        board._should_trace = False
        board._writers = {}
    elif is_silent:  # it has been another worker's
        board._summary_module = None
        board._should_trace = getattr(board, _TRACES)
        board._writers = {}


class _NoSummaries:
    """`tf.summary` where nothing is written, for `TensorBoard`. It does not import TensorFlow.

    What Keras's does not use is TensorFlow's. It has no default writer.
    """

    def create_file_writer(self, *args: object, **kwargs: object) -> "_NoWriter":
        return _NoWriter()

    def record_if(self, condition: object) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def scalar(self, *args: object, **kwargs: object) -> bool:
        return False

    histogram = image = graph = scalar

    def __getattr__(self, name: str) -> Any:
        import tensorflow as tf

        return getattr(tf.summary, name)


class _NoWriter:
    """A writer of summaries that writes none. What is the default writer remains so."""

    def as_default(self, step: object = None) -> contextlib.AbstractContextManager["_NoWriter"]:
        return contextlib.nullcontext(self)

    def flush(self) -> None:
        pass

    close = flush


def _set_model(original: Callable[..., Any], self: Any, model: keras.Model) -> None:
    """It writes the model's graph and the names of embeddings, unless that is left to worker 0."""
    choose(self, model)
    if not leaves_files_to_worker_0(model):
        original(self, model)
        return
    with _having(self, write_graph=False, embeddings_freq=0):
        original(self, model)


def _log_embeddings(original: Callable[..., Any], self: Any, epoch: int) -> None:
    """It saves the model's weights."""
    if leaves_files_to_worker_0(self.model):
        take_part(self.model)
    else:
        original(self, epoch)


def _open(original: Callable[..., Any], self: Any, logs: Logs = None) -> None:
    """`CSVLogger` opens its file where a training begins, and writes to it from then on."""
    if not leaves_files_to_worker_0(self.model):
        original(self, logs)
        return
    with _having(self, filename=os.devnull):
        original(self, logs)


@contextlib.contextmanager
def _having(callback: keras.callbacks.Callback, **attributes: object) -> Iterator[None]:
    """Meanwhile a callback has other attributes."""
    before = {name: getattr(callback, name) for name in attributes}
    for name, value in attributes.items():
        setattr(callback, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(callback, name, value)
