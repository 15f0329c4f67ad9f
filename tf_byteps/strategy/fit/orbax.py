"""`keras.callbacks.OrbaxCheckpoint`: worker 0 saves, and all workers know what is the best."""

from collections.abc import Callable
from typing import Any

import keras

from tf_byteps.strategy.fit import metrics, statistics
from tf_byteps.strategy.fit.writers import on_worker_0, trains_together
from tf_byteps.types import Logs
from tf_byteps.wrapping import Change

#: The class; there is none in early versions of Keras.
OrbaxCheckpoint = getattr(keras.callbacks, "OrbaxCheckpoint", None)


def changes() -> list[Change]:
    """Each an owner, the name of its attribute, and what replaces that."""
    if OrbaxCheckpoint is None:
        return []
    return [
        (OrbaxCheckpoint, "_save_checkpoint", on_worker_0),
        (OrbaxCheckpoint, "on_train_batch_end", _on_batch_end),
        (OrbaxCheckpoint, "_should_save_on_batch", _should_save),
    ]


def _is_everywhere(callback: keras.callbacks.Callback) -> bool:
    """Whether all workers have this callback, and so come here after the same batches."""
    return trains_together(callback.model) and getattr(callback, "_byteps_on_all_workers", False)


def _on_batch_end(original: Callable[..., Any], self: Any, batch: int, logs: Logs = None) -> None:
    """After a batch, the logs are each worker's own: those of all rows so far decide."""
    decides = _is_everywhere(self) and self.save_best_only
    self._byteps_logs = dict(logs or {}) if decides else None
    original(self, batch, logs if self._byteps_logs is None else self._byteps_logs)


def _should_save(original: Callable[..., Any], self: Any, batch: int) -> Any:
    saves = original(self, batch)
    if saves and _is_everywhere(self):
        statistics.average_all(self.model)
    if saves and self._byteps_logs is not None:
        self._byteps_logs.update(metrics.logs_so_far(self.model, dict(self._byteps_logs)))
    return saves
