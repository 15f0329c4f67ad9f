"""A training that ends in order when one of its processes is told to end."""

import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import keras
import numpy as np

from tf_byteps import runtime
from tf_byteps.exchange import host
from tf_byteps.exchange.strategies import is_ours
from tf_byteps.types import Logs
from tf_byteps.wrapping import wrap

_lock = threading.Lock()
_installed = False
_leaving = weakref.WeakSet()  # models whose workers have agreed to leave


class LeaveOnSignal(keras.callbacks.Callback):
    """Ends the training of all workers, after the same step, when one is told to end.

    SIGTERM is what `bpslaunch`, Kubernetes and batch systems send before they kill. The worker that
    gets it finishes its step and tells the others; all stop there, the callbacks of the end of an
    epoch and of a training run (`ModelCheckpoint` saves; `BackupAndRestore` saves, and keeps its
    backup), then all say goodbye and exit with code 128 + signal (143), as after a restartable end.
    Started again, `BackupAndRestore` goes on with the next epoch.

    Give it to all workers, as the last callback. It costs one exchange of four bytes for each
    batch (each call of the train function).

    Args:
        signals: those that end the training.
        exit_process: whether the process exits; else `fit` returns, and the attribute `signal`
            says why.

    Attributes:
        signal: the number of the signal that has ended the training, on all workers; 0: none has.

    Raises:
        RuntimeError: when training begins, if that is not in the main thread.

    Example:

    >>> model.fit(dataset, callbacks=[
    ...     keras.callbacks.BackupAndRestore("backup"),
    ...     tf_byteps.keras.callbacks.LeaveOnSignal(),
    ... ])
    """

    reads_weights = False
    stops_after_batches = True

    def __init__(
        self, signals: Iterable[int] = (signal.SIGTERM,), exit_process: bool = True
    ) -> None:
        super().__init__()
        self.signals = tuple(signals)
        self.exit_process = exit_process
        self.signal = 0
        self._own = 0
        self._previous = {}
        _install()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Begins to listen."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("LeaveOnSignal needs fit in the main thread: only it gets signals")
        self.signal = self._own = 0
        _leaving.discard(self.model)
        for number in self.signals:
            self._previous[number] = signal.signal(number, self._note)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Stops all workers. With `BytePSStrategy` they agree on `stop_training` by themselves."""
        strategy = getattr(self.model, "distribute_strategy", None)
        number = self._own if is_ours(strategy) else _largest(self._own)
        if number:
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """All learn which signal it was, before callbacks end."""
        self.signal = _largest(self._own)
        if self.signal:
            _leaving.add(self.model)
            self.model.stop_training = True

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Exits if the training was ended by a signal, together with the others."""
        if self.signal and self.exit_process:
            _largest(self.signal)  # all have saved
            raise SystemExit(128 + self.signal)
        self._stop_listening()
        if self._own and not self.signal:
            os.kill(os.getpid(), self._own)  # it came after the last epoch

    def _note(self, number: int, frame: FrameType | None) -> None:
        if _is_in_fit(frame, self.model):
            self._own = number
            return
        # The training has ended with an exception: what was there before is to take it.
        self._stop_listening()
        os.kill(os.getpid(), number)

    def _stop_listening(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}


def _largest(number: int) -> int:
    """Of all workers. A collective, which waits."""
    if runtime.size() == 1:
        return number
    own = np.array(number, np.int32)
    return int(host.exchange_all([own], ["leave on signal"], kind="max")[0])


def _is_in_fit(frame: FrameType | None, model: keras.Model | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "fit" and frame.f_locals.get("self") is model:
            return True
        frame = frame.f_back
    return False


def _install() -> None:
    global _installed
    with _lock:
        if not _installed:
            wrap(keras.callbacks.BackupAndRestore, "on_train_end", _end_backup)
        _installed = True


def is_leaving(model: keras.Model | None) -> bool:
    """Whether a signal has ended the model's training, which is to go on later.

    Args:
        model: a callback's.

    Returns:
        A boolean, the same on all workers where an epoch has ended.
    """
    return model in _leaving


def _end_backup(
    original: Callable[..., Any], self: keras.callbacks.BackupAndRestore, logs: Logs = None
) -> None:
    """Keras deletes the backup where a training ends; one that leaves will be resumed."""
    if not is_leaving(self.model):
        original(self, logs)
