"""Local steps for `keras.Model.fit` without a strategy."""

from typing import Any

import keras
import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.exchange.optimizers import is_distributed
from tf_byteps.exchange.strategies import strategy_of
from tf_byteps.local_steps.outer_sync import OuterSync
from tf_byteps.ops import push_pull
from tf_byteps.types import Logs


class OuterSyncCallback(keras.callbacks.Callback):
    """Brings workers together that train by themselves with `fit`, every so many steps.

    The model has a plain optimizer and no strategy, and `fit` gets this worker's own rows. All
    workers make the same number of steps in an epoch. Validation, callbacks after this one where an
    epoch ends, and what follows `fit` see the global weights. Moving statistics are averaged there.
    A later `fit` goes on with the outer momentum; after one that an exception has ended it begins
    anew, with worker 0's weights.

    `BytePSStrategy(local_steps=)` does the same with a strategy, which shards the rows, too.

    Args:
        local_steps: see `OuterSync`.
        outer: see `OuterSync`.
        **settings: what else `OuterSync` takes, such as `outer_momentum`, `fragments` or `quorum`.

    Attributes:
        outer: the `OuterSync`, once training has begun; `None` before. `tf.train.Checkpoint` saves
            its momentum.

    Raises:
        ValueError: when training begins: the model has no variables yet, has a strategy of
            tf_byteps, or an optimizer that exchanges gradients in each step; or see `OuterSync`.

    Example:

    >>> model.compile("adam", "mse")
    >>> model.fit(x, y, callbacks=[OuterSyncCallback(local_steps=32, outer="diloco")])
    """

    def __init__(self, local_steps: int, outer: str = "average", **settings: Any) -> None:
        super().__init__()
        self._settings = {"local_steps": local_steps, "outer": outer, **settings}
        self._made = 0  # steps of this epoch
        self._is_training = False
        self.outer: OuterSync | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """All workers begin with the same weights."""
        self._check()
        if self._is_training and self.outer is not None:  # an exception has ended the last one
            self.outer._rounds.abandon()
            self.outer = None
        if self.outer is None:
            self.outer = OuterSync(self.model.trainable_variables, **self._settings)
        else:
            self.outer.finish()  # rounds begin with the weights as they are now
        self._is_training = True

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Counts steps from here."""
        self._made = 0

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Begins and ends the rounds that are due. `batch` is the last of several steps at once."""
        assert self.outer is not None
        for _ in range(batch + 1 - self._made):
            self.outer.step()
        self._made = batch + 1

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """Ends all rounds, if this is a validation of `fit`."""
        if self._is_training:
            self._come_together()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Ends all rounds."""
        self._come_together()

    def on_train_end(self, logs: Logs | None = None) -> None:
        """The workers have come together at the end of the epoch."""
        self._is_training = False

    def _come_together(self) -> None:
        assert self.outer is not None
        self.outer.finish()
        statistics = [
            each.value
            for each in self.model.non_trainable_variables
            if tf.as_dtype(each.dtype).is_floating
        ]
        if runtime.size() > 1 and statistics:
            averages = push_pull(statistics, op="average", name="outer/statistics")
            for variable, value in zip(statistics, averages, strict=True):
                variable.assign(value)

    def _check(self) -> None:
        model = self.model
        if strategy_of(model) is not None:
            raise ValueError(
                "OuterSyncCallback is for models without a strategy: make the strategy with "
                "BytePSStrategy(local_steps=...) and leave the callback out"
            )
        if not model.trainable_variables:
            raise ValueError(
                f"the model {model.name!r} has no variables yet: give it a keras.Input, or call "
                "model.build(input_shape), before it trains with OuterSyncCallback"
            )
        if is_distributed(model.optimizer):
            raise ValueError(
                "OuterSyncCallback is for optimizers that exchange nothing, and this one is a "
                "DistributedOptimizer: compile the model with the optimizer itself"
            )
