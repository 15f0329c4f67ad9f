"""The state of an elastic job whose workers make local steps: nobody goes back."""

from collections.abc import Callable
from typing import Any

import keras

from tf_byteps import runtime
from tf_byteps.elastic import quorum_fits, retracing
from tf_byteps.elastic.keras_states import KerasState
from tf_byteps.elastic.states import State
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.local_steps.outer_sync import OuterSync
from tf_byteps.local_steps.quorum import QuorumRounds
from tf_byteps.training.variables import tf_variable


class OuterSyncState(KerasState):
    """A Keras model that workers train by local steps, each at its own pace, and values.

    When a worker is lost, the others go on with the newest global weights and with all that they
    have trained since: nothing is done again, and no commit is needed. New workers are let in after
    the step that each of the others is making. They take the global weights, and rank 0's state of
    the optimizer and values. Those that were there keep their own.

    Args:
        model: a `keras.Model` whose shapes are known, with an optimizer that exchanges nothing.
        make_outer: a function without arguments that makes a `tf_byteps.OuterSync` with a quorum.
            It is called once, when the workers are together.
        optimizer: see `KerasState`.
        **values: see `ObjectState`.

    Attributes:
        outer: the `OuterSync`, within the function that `elastic.run` calls. Its `step` ends that
            call when the workers change.

    Raises:
        ValueError: the model is not built; or, within `elastic.run`, the `OuterSync` has no quorum.

    Example:

    ```python
    def make_outer():
        return tf_byteps.OuterSync(model.trainable_variables, local_steps=32, quorum=3)

    state = tf_byteps.elastic.OuterSyncState(model, make_outer)

    @tf_byteps.elastic.run
    def train(state):
        while state.rows_done < 1_000_000:
            train_step(*next(batches))
            state.outer.step(rows=64)
        state.outer.finish()
    ```
    """

    def __init__(
        self,
        model: keras.Model,
        make_outer: Callable[[], OuterSync],
        optimizer: keras.optimizers.Optimizer | None = None,
        **values: Any,
    ) -> None:
        self._make_outer = make_outer
        retracing.keep_traces()
        self.outer: OuterSync | None = None
        super().__init__(model, optimizer, **values)

    @property
    def goes_back(self) -> bool:
        """See `State`: to nothing."""
        return False

    @property
    def rows_done(self) -> int:
        """How many rows of all workers are in the global weights: the same after the same round.

        Returns:
            An integer; 0 before the workers are together.
        """
        rounds = self._rounds()
        return 0 if rounds is None else rounds.rows_done

    def restore(self) -> None:
        """See `State.restore`. The state stays as it is."""

    def on_reset(self) -> None:
        """See `State.on_reset`."""
        State.on_reset(self)

    def sync(self) -> None:
        """Gives new workers rank 0's state, and all the newest global weights. A collective."""
        is_new = self.outer is None
        news = gather_objects("elastic/is new", is_new) if runtime.size() > 1 else [is_new]
        if any(news):
            self._welcome(is_new)
        rounds = self._rounds()
        assert rounds is not None  # of new workers, too
        rounds.rejoin(is_new)

    def _welcome(self, is_new: bool) -> None:
        """What new workers take, the others get as well, and put their own in its place."""
        values = self._values()
        own = [(each, each.numpy()) for each in map(tf_variable, self.variables())]
        try:
            super().sync()
            if is_new:
                outer = self._make_outer()
                if not isinstance(outer._rounds, QuorumRounds):
                    raise ValueError(
                        "make_outer has made an OuterSync without a quorum, whose workers come to "
                        "each round together: give it quorum=, or train with a KerasState and "
                        "commits"
                    )
                outer._after_step = self._look
                self.outer = outer
            else:
                rounds = self._rounds()
                assert self.outer is not None and rounds is not None
                self.outer._synchronize()
                rounds.begin_meetings()
        finally:
            if not is_new:
                self._set(values)
                for variable, value in own:
                    variable.assign(value)

    def _rounds(self) -> QuorumRounds | None:
        rounds = None if self.outer is None else self.outer._rounds
        assert rounds is None or isinstance(rounds, QuorumRounds)
        return rounds

    def _look(self) -> None:
        """After each step: the others need not wait for this worker's next round."""
        if (change := quorum_fits.coming_change()) is not None:
            raise change
