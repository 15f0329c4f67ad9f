"""Local steps for training loops without a strategy."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.exchange.compression_choice import CompressionChoice
from tf_byteps.local_steps.making import rounds_of
from tf_byteps.local_steps.settings import LocalSteps
from tf_byteps.ops import Compression
from tf_byteps.training.initial_values import synchronize


class OuterSync(tf.Module):
    """Brings workers together that train by themselves, every so many steps.

    Each worker trains on its own rows with an optimizer of its own, without exchanging gradients.
    Every `local_steps` steps the workers average how far their weights have moved, and an outer
    optimizer takes a step with that average. See docs/local_steps.md, and
    `BytePSStrategy(local_steps=)` for `Model.fit`.

    Worker 0's weights are given to all when it is made. A collective. A `tf.train.Checkpoint` of it
    has the outer momentum: `tf.train.Checkpoint(model=model, outer=outer)`.

    Args:
        variables: the weights, `keras.Variable`s or `tf.Variable`s: `model.trainable_variables`.
        local_steps: how many steps a worker makes between two outer rounds, 1 or more.
        outer: `"average"` (local SGD), or `"diloco"` (SGD with Nesterov momentum).
        outer_learning_rate: what the average change is multiplied by. Default: 1 with `"average"`,
            0.7 with `"diloco"`.
        outer_momentum: Nesterov momentum, from 0 to below 1. Default: 0 with `"average"`; with
            `"diloco"` 0.6 in the first 50 rounds, then rising to 0.9 in 50 more.
        fragments: into how many parts the weights are split, each with rounds of its own.
        delay: how many steps later than a round begins its result is taken; the exchange is in
            flight meanwhile. Less than `local_steps`.
        mix: the share of a worker's own weights in what it goes on with after a round. Default: 0,
            with a delay 0.5.
        compression: how changes are made smaller on the wire, as in `push_pull`.
        quorum: how many workers must have come before a round ends, see `BytePSStrategy`. Workers
            may make different numbers of steps then. Default: all.
        grace: how many seconds a round waits for more workers then. Default: as the spread of the
            workers suggests.

    Raises:
        TypeError: an argument is of another type than it must be.
        ValueError: an argument is out of range, or the workers' variables differ.

    Example:

    ```python
    tf_byteps.init()
    outer = tf_byteps.OuterSync(model.trainable_variables, local_steps=32, outer="diloco")
    for images, labels in batches:  # this worker's own
        train_step(images, labels)  # with a plain optimizer
        outer.step()
    outer.finish()  # all workers have the global weights
    ```
    """

    def __init__(
        self,
        variables: Sequence[Any],
        local_steps: int,
        outer: str = "average",
        *,
        outer_learning_rate: float | None = None,
        outer_momentum: float | None = None,
        fragments: int = 1,
        delay: int = 0,
        mix: float | None = None,
        compression: CompressionChoice = Compression.none,
        quorum: int | None = None,
        grace: float | None = None,
    ) -> None:
        super().__init__(name="outer_sync")
        settings = LocalSteps(
            local_steps,
            outer,
            outer_learning_rate,
            outer_momentum,
            fragments,
            delay,
            mix,
            quorum=quorum,
            grace=grace,
        )
        variables = list(variables)
        if not variables:
            raise ValueError("there are no variables: build the model before OuterSync is made")
        runtime.init()
        job = runtime.config()
        settings.check_job(runtime.size(), job.elastic, job.deterministic)
        names = [getattr(each, "path", each.name) for each in variables]
        values = [each.value if isinstance(each, keras.Variable) else each for each in variables]
        self._after_step: Callable[[], None] | None = None
        self._named = list(zip(names, values, strict=True))
        self._synchronize()
        self._rounds = rounds_of(names, values, settings, compression, variables)
        self._outer_state = self._rounds.state  # which a checkpoint tracks
        self._rounds.begin_steps()

    def _synchronize(self) -> None:
        synchronize("weights of OuterSync", self._named)

    @property
    def rounds(self) -> int:
        """How many outer rounds have ended, each fragment's counted."""
        return self._rounds.count

    @property
    def divergence(self) -> float | None:
        """How far this worker's weights were from the average of all workers' in the last round.

        The Euclidean norm of the difference; `None` before the first round.
        """
        return None if self._rounds.divergence is None else float(self._rounds.divergence)

    @property
    def others_wait(self) -> bool:
        """With a quorum: whether so many workers are in `finish`, and wait for this one."""
        return self._rounds.is_ending

    def step(self, rows: int | tf.Tensor = 1) -> None:
        """To be called after each step: begins and ends the rounds that are due.

        A collective where one is due, so that all workers must make the same number of steps; with
        a quorum each may make its own.

        Args:
            rows: how many rows this worker's step was for, a scalar. Changes are averaged with the
                rows as weights.
        """
        self._rounds.rows.assign_add(tf.cast(rows, tf.int64))
        self._rounds.end_steps()
        self._rounds.begin_steps()
        if self._after_step is not None:
            self._after_step()

    def finish(self) -> None:
        """Ends all rounds: all workers have the global weights then. A collective.

        To be called before the weights are saved or evaluated. Training may go on afterwards. To be
        called, too, when all workers have restored a checkpoint: rounds begin with its weights.
        """
        self._rounds.finish()
        self._rounds.begin_steps()
