"""Callbacks for `keras.Model.fit` within an elastic training function."""

from typing import Any

import keras

from tf_byteps.elastic.states import State


class CommitStateCallback(keras.callbacks.Callback):
    """Commits a state every some batches, and after each epoch.

    It does so where the next batch or epoch begins, when all callbacks have seen the end of the
    last: their order does not matter.

    Args:
        state: a `State`.
        batches_per_commit: an integer: after so many batches the state is committed.

    Raises:
        ValueError: `batches_per_commit` is less than 1. While it trains, see `State.commit`.

    Example:

    >>> model.fit(x, y, callbacks=[CommitStateCallback(state, batches_per_commit=100)])
    """

    reads_weights = False  # but through Keras's variables, which are whole then

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        super().__init__()
        if batches_per_commit < 1:
            raise ValueError(f"batches_per_commit must be at least 1, got {batches_per_commit}")
        self.state = state
        self.batches_per_commit = batches_per_commit
        self._committed = 0
        self._is_due = False

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Nothing is due yet."""
        self._is_due = False

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Commits the epoch before."""
        self._committed = 0
        self._commit_if_due()

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Commits the batches before, if they are enough."""
        if batch - self._committed >= self.batches_per_commit:
            self._committed = batch
            self.state.commit()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Notes that a commit is due."""
        self._is_due = True

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Commits the last epoch."""
        self._commit_if_due()

    def _commit_if_due(self) -> None:
        if self._is_due:
            self._is_due = False
            self.state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):
    """Keeps the number of batches done in this epoch in `state.batch`.

    It counts on from what the state has: a training that goes on within an epoch skips so many
    batches of its dataset. After the epoch it is 0.

    Args:
        state: a `State` with a value `batch`.

    Raises:
        AttributeError: while it trains: the state has no such value.

    Example: see docs/elastic.md.
    """

    reads_weights = False

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state = state
        self._before = 0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Notes how many batches are done already."""
        self._before = self.state.batch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Counts."""
        self.state.batch = self._before + batch + 1

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """The next epoch begins at 0."""
        self.state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):
    """Keeps the number of epochs done in `state.epoch`.

    It counts on from what the state has, whether `fit` is given `initial_epoch=state.epoch` or
    counts its epochs from 0.

    Args:
        state: a `State` with a value `epoch`.

    Raises:
        AttributeError: while it trains: the state has no such value.

    Example:

    >>> model.fit(x, y, initial_epoch=state.epoch, epochs=10,
    ...           callbacks=[UpdateEpochStateCallback(state)])
    """

    reads_weights = False

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state = state
        self._offset = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """The first epoch says from where `fit` counts."""
        self._offset = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Compares the two counts in the first epoch."""
        if self._offset is None:
            self._offset = self.state.epoch - epoch

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Counts."""
        self.state.epoch = self._offset + epoch + 1
