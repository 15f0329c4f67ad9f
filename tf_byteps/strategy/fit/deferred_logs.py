"""Logs of a step that are read while a GPU computes the next one.

After each step Keras reads the loss, for callbacks that look at batches. It waits for the step's
last kernel, also if no callback looks. Then the GPU idles until Python and TensorFlow have started
the next step: 12 ms with BERT-large on an H100. Here the next step is started first. So one step
waits behind the one that a GPU computes, and not more.

A progress bar is one step behind. Callbacks that save epochs have nothing to do after a batch. Any
other callback that has something to do there gets the batch when it has ended, as ever: it may look
at the model, or stop the training.
"""

import concurrent.futures
import functools
from collections.abc import Callable
from typing import Any

import keras

from tf_byteps.ops.device import own_device
from tf_byteps.private.keras import pythonify_logs
from tf_byteps.strategy import batch_handlers
from tf_byteps.strategy.fit.callbacks import DeferredLogs
from tf_byteps.timeline import python_steps
from tf_byteps.types import Logs


def changes() -> list[Any]:
    """The change to Keras's lists of callbacks, as `callbacks.changes`."""
    return [(keras.callbacks.CallbackList, "on_train_batch_end", _end_batch)]


def _end_batch(
    original: Callable[..., Any], self: keras.callbacks.CallbackList, batch: int, logs: Logs = None
) -> None:
    first = self.callbacks[0] if self.callbacks else None
    is_deferred = isinstance(first, DeferredLogs) and not self._async_train
    if is_deferred and all(map(_only_shows, self.callbacks)):
        python_steps.end_step(batch)  # the step has come back, though its batch ends later
        read = _reader(logs)
        first.defer(lambda: self._on_train_batch_end(batch, read()))
    else:
        original(self, batch, logs)


def _reader(logs: Logs) -> Callable[[], Any]:
    """A function that returns the logs' values.

    TensorFlow copies a value from a GPU behind all that the GPU has been given until then. So a
    thread asks for the copy before the next step is started.
    """
    if "GPU" not in own_device():
        return lambda: logs
    return _thread().submit(pythonify_logs, logs).result


@functools.cache
def _thread() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="byteps-logs")


def _only_shows(callback: keras.callbacks.Callback) -> bool:
    handlers = batch_handlers.own_handlers(callback, batch_handlers.AT_THE_END)
    return all(batch_handlers.is_of(h, keras.callbacks.ProgbarLogger) for h in handlers)
