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

from tf_byteps.exchange.strategies import is_ours
from tf_byteps.ops.device import own_device
from tf_byteps.private.keras import pythonify_logs
from tf_byteps.strategy import batch_handlers
from tf_byteps.types import Logs

_HELD = "_byteps_held"  # of a list of callbacks: how its last batch is to be ended


def changes() -> list[Any]:
    """The changes to Keras's lists of callbacks, as `callbacks.changes`."""
    owner = keras.callbacks.CallbackList
    return [
        (owner, "_on_train_batch_end", _end_batch),
        *((owner, name, _after_the_last) for name in ("on_test_begin", "on_epoch_end")),
        (owner, "on_train_begin", _begin),
    ]


def _begin(
    original: Callable[..., Any], self: keras.callbacks.CallbackList, logs: Logs = None
) -> None:
    setattr(self, _HELD, None)  # an exception may have ended a training with it
    original(self, logs)


def _end_batch(
    original: Callable[..., Any], self: keras.callbacks.CallbackList, batch: int, logs: Logs = None
) -> None:
    if self._async_train or not _may_be_late(self):
        original(self, batch, logs)
        return
    end_before = getattr(self, _HELD, None)
    read = _reader(logs)
    setattr(self, _HELD, lambda: original(self, batch, read()))
    if end_before is not None:
        end_before()


def _after_the_last(
    original: Callable[..., Any],
    self: keras.callbacks.CallbackList,
    *args: object,
    **kwargs: object,
) -> None:
    end_last = getattr(self, _HELD, None)
    setattr(self, _HELD, None)
    if end_last is not None:
        end_last()
    original(self, *args, **kwargs)


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


def _may_be_late(callbacks: keras.callbacks.CallbackList) -> bool:
    strategy = getattr(callbacks.model, "distribute_strategy", None)
    return is_ours(strategy) and all(map(_only_shows, callbacks.callbacks))


def _only_shows(callback: keras.callbacks.Callback) -> bool:
    handlers = batch_handlers.own_handlers(callback, batch_handlers.AT_THE_END)
    return all(batch_handlers.is_of(h, keras.callbacks.ProgbarLogger) for h in handlers)
