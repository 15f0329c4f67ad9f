"""What `BytePSStrategy` changes about Keras's callbacks.

All workers have the same callbacks and see the same logs at the end of an epoch, so that they
decide alike. Three things are left: files are to be written once, what was read from a file must
reach workers that cannot see it, and a decision that one worker takes alone must become everyone's.
"""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import keras

from tf_byteps import runtime
from tf_byteps.errors import on_all_workers
from tf_byteps.exchange import leaving
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.strategy.fit import (
    framework,
    loggers,
    metrics,
    orbax,
    own_callbacks,
    random_states,
    settings,
    statistics,
    stopping,
    weights,
)
from tf_byteps.strategy.fit.writers import (
    leaves_files_to_worker_0,
    on_worker_0,
    take_part,
    trains_together,
)
from tf_byteps.tables import layout as layouts
from tf_byteps.training import progress_bar
from tf_byteps.types import Logs

_SAVING = tuple(
    filter(
        None,
        (keras.callbacks.ModelCheckpoint, keras.callbacks.BackupAndRestore, orbax.OrbaxCheckpoint),
    )
)


class FitCallback(keras.callbacks.Callback):
    """Runs after the user's callbacks, at points of `fit` that all workers pass."""

    if TYPE_CHECKING:

        @property
        def model(self) -> keras.Model: ...

    reads_weights = False  # where a batch ends

    def __init__(self, check_weights: str, draws_on_host: bool) -> None:
        super().__init__()
        self._check_weights = check_weights
        self._draws_on_host = draws_on_host

    def on_train_begin(self, logs: Logs = None) -> None:
        """Weights and the first epoch are worker 0's, also after a callback restored a backup."""
        model = self.model
        model._initial_epoch = gather_objects("first epoch", model._initial_epoch)[0]
        model.distribute_strategy.extended.synchronize_model(model)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        statistics.begin(self.model)
        stopping.agree(self.model)
        if self._draws_on_host:
            random_states.agree()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        metrics.give_back(self.model)
        weights.check(self.model, self._check_weights)
        stopping.end_epoch(self.model)

    def on_train_end(self, logs: Logs = None) -> None:
        metrics.show_all(self.model)


class EveryBatch(FitCallback):
    """For trainings that a callback may stop after any batch."""

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        stopping.agree(self.model)


class DeferredLogs(keras.callbacks.Callback):
    """Runs before the user's callbacks: ends the last batch (see `deferred_logs`) before an epoch
    ends or a validation begins. A list of callbacks without it gets each batch when it has ended.
    """

    reads_weights = False

    def __init__(self) -> None:
        super().__init__()
        self._end_last: Callable[[], object] | None = None

    def on_test_begin(self, logs: Logs = None) -> None:
        self.defer(None)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self.defer(None)

    def defer(self, end: Callable[[], object] | None) -> None:
        """Ends the batch before.

        Args:
            end: to be called when the next one has been started; `None`: there is none yet.
        """
        end_before, self._end_last = self._end_last, end
        if end_before is not None:
            end_before()


def completed(
    callbacks: own_callbacks.Given, model: keras.Model, epochs: int, draws_on_host: bool
) -> Any:
    """The callbacks of a training, and ours. A collective: all workers call it.

    Args:
        callbacks: what `fit` was given: a callback, a list, a `keras.callbacks.CallbackList`, or
            `None`. Workers may have different ones.
        model: the `keras.Model` that trains.
        epochs: what `fit` was given.
        draws_on_host: whether the order of rows may come from the host's random numbers. If so on
            one worker, all take over worker 0's, now and in each epoch (see `random_states`).

    Returns:
        What `fit` is to be given instead.

    Raises:
        ValueError: on all workers, if they would not train for the same epochs, or have not the
            same callbacks of those that exchange.
    """
    mine = own_callbacks.flat(callbacks)
    on_batches = _saving_on_batches(mine)
    facts = {
        "may stop": stopping.is_agreed_after_batches(model, mine),
        "saves": [
            [isinstance(callback, keras.callbacks.BackupAndRestore), callback.save_freq]
            for callback in on_batches
        ],
        "check weights": runtime.config().check_weights,
        "in an epoch": statistics.is_of_own_rows(model),
        "epochs": int(epochs),
        "collective": sorted(filter(None, (_collective(model, each) for each in mine))),
        "learning rate": settings.learning_rate(model),
        "draws on host": draws_on_host,
    }
    everyone, _ = leaving.meet(facts)
    settings.check_equal(everyone)
    settings.compare_learning_rates([other["learning rate"] for other in everyone])
    if all(other["in an epoch"] for other in everyone):
        # The last training was interrupted. Now, before a callback restores a backup on worker 0.
        statistics.end_epoch(model)
    statistics.forget(model)
    for callback in mine:
        loggers.choose(callback, model)
    for callback in on_batches:
        callback._byteps_on_all_workers = all(  # pyright: ignore[reportAttributeAccessIssue]
            other["saves"] == facts["saves"] for other in everyone
        )
    draws = any(other["draws on host"] for other in everyone)
    if draws:
        random_states.agree()
    may_stop = any(other["may stop"] for other in everyone)
    last = (EveryBatch if may_stop else FitCallback)(everyone[0]["check weights"], draws)
    result = own_callbacks.added(callbacks, model, [DeferredLogs()], [last])
    if may_stop and isinstance(result, keras.callbacks.CallbackList):
        result._async_train = False  # decided when it was made
    return result


def _saving_on_batches(callbacks: Sequence[Any]) -> list[Any]:
    """Those of a list that save after some batches, not after epochs."""
    return [
        callback
        for callback in callbacks
        if isinstance(callback, _SAVING) and callback.save_freq != "epoch"
    ]


def _collective(model: keras.Model, callback: keras.callbacks.Callback) -> str:
    """By what name a callback must be on all workers; "" if it need not."""
    if isinstance(callback, _SAVING) and layouts.spread_variables(model):
        freq = getattr(callback, "save_freq", None)
        return f"{type(callback).__name__}(save_freq={freq!r})"
    if isinstance(callback, keras.callbacks.TensorBoard) and layouts.spread_variables(model):
        freq = callback.embeddings_freq  # it saves all weights
        return f"{type(callback).__name__}(embeddings_freq={freq!r})" if freq else ""
    return getattr(callback, "collective", "")


def changes() -> list[Any]:
    """The changes to Keras that let worker 0 alone write files, and show a progress bar.

    Returns:
        A list of triples: a class, the name of a method, and a function that replaces it and is
        called with the original before the method's arguments.
    """
    classes = keras.callbacks
    return [
        *loggers.changes(),
        (classes.ModelCheckpoint, "_save_model", _decide_and_save),
        (classes.BackupAndRestore, "on_train_begin", _restore),
        (classes.BackupAndRestore, "on_train_end", on_worker_0),
        (classes.BackupAndRestore, "_save_model", _back_up),
        *orbax.changes(),
        progress_bar.change(trains_together),
    ]


def _decide_and_save(
    original: Callable[..., Any], self: Any, epoch: int, batch: int | None, logs: Logs
) -> None:
    """Every worker keeps the best value so far, which `ModelCheckpoint` shows as `best`.

    After a batch, the logs are each worker's own, and so is what follows its rows. Where all
    workers have this callback, so that all come here, they are replaced by those of all rows so
    far.
    """
    if not trains_together(self.model):
        original(self, epoch, batch, logs)
        return
    if batch is not None and _is_on_all_workers(self):
        # First of all: with a quorum workers are at different steps before, and would wait in both.
        framework.current().finish_local_steps(self.model)
        logs = metrics.logs_so_far(self.model, logs)
        statistics.average_all(self.model)
    if leaves_files_to_worker_0(self.model):
        path = self._get_file_path(epoch, batch, logs)
        if self._should_save_model(epoch, batch, logs, path):
            take_part(self.model)
    else:
        original(self, epoch, batch, logs)


def _back_up(original: Callable[..., Any], self: Any) -> None:
    """After a batch, where all workers come here, what is saved is made that of all workers."""
    if self.save_freq != "epoch" and _is_on_all_workers(self):
        framework.current().finish_local_steps(self.model)
        statistics.average_all(self.model)
    on_worker_0(original, self)
    if leaves_files_to_worker_0(self.model):
        take_part(self.model)


def _restore(original: Callable[..., Any], self: Any, logs: Logs = None) -> None:
    """Each worker reads its rows of tables; all else is worker 0's, as others may see no backup.

    Raises:
        ValueError: on all workers, if there are such tables and some cannot read the backup.
    """
    if not trains_together(self.model) or not layouts.spread_variables(self.model):
        on_worker_0(original, self, logs)
        return
    sees = gather_objects("backup of tables", os.path.exists(self._weights_path))
    if len(set(sees)) > 1:
        raise on_all_workers(
            ValueError(
                f"worker {sees.index(True)} sees the backup {self._weights_path!r}, worker "
                f"{sees.index(False)} does not: the model has tables whose rows are spread over "
                "the workers, so that all must read it; use a folder that all workers share"
            )
        )
    original(self, logs)


def _is_on_all_workers(callback: keras.callbacks.Callback) -> bool:
    """Whether all workers have a callback that saves after batches, and come to it together."""
    return getattr(callback, "_byteps_on_all_workers", False)
