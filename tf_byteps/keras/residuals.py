"""Error feedback of compressed gradients that outlives a process."""

# Keras's types say little of a callback's model.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

import glob
import json
import logging
import os
from typing import Any

import keras
import numpy as np

from tf_byteps import _engine, logs, runtime
from tf_byteps.files import whole_file
from tf_byteps.keras.framework import current
from tf_byteps.keras.interface import Matrix
from tf_byteps.keras.leaving import is_leaving

_KEPT_EPOCHS = 2  # a crash may come before the epoch's weights are saved
_HEAD = "head"

_logger = logging.getLogger("tf_byteps")


class BackupResiduals(keras.callbacks.Callback):
    """Saves error feedback at the end of each epoch, for a training that is started again.

    With compression each worker keeps what the codec has lost, the residuals. They are in no
    checkpoint. This callback saves them beside one: each worker writes files of its own, for the
    last two epochs. A training that goes on with a later epoch than the first takes up those of
    that epoch. If a worker finds none, its log says so and its residuals begin at zero. That is so,
    too, when the number of workers has changed. When the training ends the files are deleted,
    except where `LeaveOnSignal` ends it.

    Give it to all workers, before `keras.callbacks.BackupAndRestore`. Works with `BytePSStrategy`
    and with `DistributedOptimizer`.

    Args:
        folder: where the files are written. Workers may share it, but it must not be the one of
            `BackupAndRestore`, which deletes that.

    Raises:
        OSError: a file cannot be written or read.

    Example:

    >>> model.fit(dataset, callbacks=[
    ...     tf_byteps.keras.callbacks.BackupResiduals("residuals"),
    ...     keras.callbacks.BackupAndRestore("backup"),
    ... ])
    """

    reads_weights = False  # where a batch ends

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__()
        self.folder = os.fspath(folder)
        self._is_first_epoch = False

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """The callbacks behind this one say which epoch is the first."""
        self._is_first_epoch = True

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Takes up what was saved, in the first epoch of a training that goes on."""
        if self._is_first_epoch and epoch > 0 and runtime.size() > 1:
            self._restore(epoch)
        self._is_first_epoch = False

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Saves them, and deletes those of older epochs."""
        if runtime.size() == 1:
            return
        optimizer = getattr(self.model, "optimizer", None)
        if optimizer is not None:
            current().read_variables(self.model)
            keras.ops.convert_to_numpy(optimizer.iterations)  # waits for updates in flight
        _write(self._path(epoch + 1), _engine.residuals(), current().matrices())
        kept = [self._path(epoch + 1 - age) for age in range(_KEPT_EPOCHS)]
        self._delete_all_but(kept)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Deletes the files: the training need not go on."""
        if not is_leaving(self.model):
            self._delete_all_but([])

    def _path(self, epoch: int) -> str:
        worker = f"worker-{runtime.rank()}-of-{runtime.size()}"
        return os.path.join(self.folder, f"{worker}.epoch-{epoch}.npz")

    def _restore(self, epoch: int) -> None:
        path = self._path(epoch)
        if os.path.exists(path):
            _read(path)
            return
        _logger.warning(
            "error feedback of compressed gradients begins at zero on worker %d: there is no %s. "
            "Another number of workers may have saved it, or another epoch",
            runtime.rank(),
            path,
            extra=logs.event("feedback_reset"),
        )

    def _delete_all_but(self, kept: list[str]) -> None:
        """Of this worker's files; also of those that it wrote when there were more workers, and
        what a crash has left of one."""
        pattern = f"worker-{runtime.rank()}-of-*.epoch-*.npz*"
        for path in glob.glob(os.path.join(glob.escape(self.folder), pattern)):
            if path not in kept:
                os.remove(path)


def _write(path: str, residuals: dict[str, tuple[str, np.ndarray]], states: list[Matrix]) -> None:
    """Whole or not at all, so that a crash leaves no half of a file."""
    head = {
        "residuals": [[name, codec] for name, (codec, _) in residuals.items()],
        "matrices": [[each.name, each.shape, each.rank] for each in states],
    }
    arrays = {f"residual {i}": values for i, (_, values) in enumerate(residuals.values())}
    for i, each in enumerate(states):
        arrays[f"lost {i}"], arrays[f"right {i}"] = each.lost, each.right
    with whole_file(path) as file:
        np.savez(file, allow_pickle=False, **{_HEAD: np.array(json.dumps(head))}, **arrays)


def _read(path: str) -> None:
    with np.load(path) as file:
        head = json.loads(str(file[_HEAD]))
        _engine.restore_residuals(
            {
                name: (codec, file[f"residual {i}"])
                for i, (name, codec) in enumerate(head["residuals"])
            }
        )
        current().restore_matrices(
            [
                Matrix(name, tuple(shape), rank, file[f"lost {i}"], file[f"right {i}"])
                for i, (name, shape, rank) in enumerate(head["matrices"])
            ]
        )
