"""Outer rounds: what the workers exchange after some local steps, and what they go on with.

In a round each worker sends how far its weights have moved from the global ones, times its share of
the rows that the workers have trained on meanwhile. The sum is the average change. The outer
optimizer takes it for a gradient; its step gives the new global weights, the same bits everywhere.

A round costs each worker the bytes of its fragment once up and once down, however many workers
there are, and a number of rows before. Memory: one more copy of the weights, another for the
momentum if there is one, and while a round with a delay is in flight one of its fragment.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_byteps import _engine, step_counters
from tf_byteps.exchange.compression_choice import CompressionChoice
from tf_byteps.local_steps import schedule
from tf_byteps.local_steps.settings import LocalSteps
from tf_byteps.local_steps.state import OuterState
from tf_byteps.ops import Compression, Sum, push_pull, split, store
from tf_byteps.ops.reduction import Reduction
from tf_byteps.private.tensorflow import ResourceVariable

_HIGHEST_PRIORITY = 2**31 - 1


class Rounds:
    """The outer rounds of a training. Not thread-safe; all workers make the same calls.

    Args:
        names: of the weights, those of their exchanges.
        variables: the weights, `tf.Variable`s, the same on all workers now.
        settings: a `LocalSteps`.
        compression: how changes are made smaller on the wire, see `push_pull`; or a function of one
            of `choices`.
        choices: what a function for `compression` is called with for each weight.
        state: an `OuterState`, with which rounds go on; `None`: they begin.

    Attributes:
        state: it. It is that of the global weights when `finish` has returned.
        rows: a scalar variable of int64, to which each step adds the rows that it trains on.
        count: how many rounds have ended, each fragment's counted.
        is_ending: whether this worker should make no more steps before `finish`: others wait there.
        divergence: of the last of them: how far this worker's weights were from the average of all
            workers' weights, by the Euclidean norm; a scalar tensor, or `None` before.
    """

    def __init__(
        self,
        names: Sequence[str],
        variables: Sequence[tf.Variable],
        settings: LocalSteps,
        compression: CompressionChoice = Compression.none,
        choices: Sequence[Any] | None = None,
        state: OuterState | None = None,
    ) -> None:
        self.count = 0
        self.is_ending = False
        self.state = state or OuterState(settings)
        self.state.build(variables)
        self.divergence: tf.Tensor | None = None
        self._settings = settings
        self._schedule = schedule.Schedule(settings)
        reduction = Reduction(Sum, compression=compression)
        with tf.init_scope(), tf.device(variables[0].device):
            # Not `tf.Variable`: the workers need not agree about it.
            self.rows: Any = ResourceVariable(0, dtype=tf.int64, trainable=False)
        self._fragments = [
            self._new_fragment(
                number,
                indices,
                [f"outer/{names[index]}" for index in indices],
                [variables[index] for index in indices],
                reduction,
                [choices[index] for index in indices] if choices else None,
                self.rows,
                settings,
                self.state,
            )
            for number, indices in enumerate(schedule.split(names, settings.fragments))
        ]
        self._growth = step_counters.Growth()
        self._steps = 0  # since all fragments came together
        self._are_common = [True] * settings.fragments  # whether all workers have the same weights

    def _new_fragment(self, *args: Any) -> "Fragment":
        return Fragment(*args)

    def begin_steps(self) -> None:
        """To be called before a local step: the weights may still be the global ones."""
        if self._steps == 0:
            for fragment in self._fragments:
                fragment.keep_global()

    def end_steps(self, steps: int = 1) -> None:
        """To be called after some local steps: begins and ends the rounds that are due.

        A collective if one is due. It waits for the other workers where a round ends, not where one
        with a delay begins.

        Args:
            steps: how many steps there were since the last call.
        """
        self._note_steps(steps)
        for event, fragment in self._schedule.advance(steps):
            if event == "begin":
                self._fragments[fragment].begin()
            else:
                self._end(fragment, self._settings.own_share)

    def _note_steps(self, steps: int) -> None:
        self._steps += steps
        step_counters.add("steps_since_round", steps)
        for fragment in self._fragments:
            fragment.steps += steps
        self._are_common = [False] * len(self._fragments)

    def finish(self) -> None:
        """Ends all rounds, so that the workers have the global weights. A collective.

        A fragment without local steps since its last round exchanges nothing.
        """
        if self._steps == 0:
            return
        for fragment in self._schedule.in_flight():
            self._end(fragment, self._settings.own_share)
        for number, fragment in enumerate(self._fragments):
            if not self._are_common[number]:
                fragment.begin()
                self._end(number, own_share=0.0)
        self._schedule.restart()
        self._steps = 0

    def abandon(self) -> None:
        """Gives up what is in flight, after a failure. The weights stay this worker's own."""
        for fragment in self._schedule.in_flight():
            self._fragments[fragment].abandon()
        self._schedule.restart()
        self._steps = 0

    def _end(self, fragment: int, own_share: float) -> None:
        ended = self._fragments[fragment].end(own_share)
        if ended is None:
            return
        self.divergence, relative = ended
        begun, now = self._fragments[fragment].begun, _engine.wall_nanos()
        step_counters.end_round(fragment, begun, now, float(relative))
        if self._fragments[fragment].has_contributed:  # else its own change is no part of it
            self._growth.note(fragment, float(relative))
        self._are_common[fragment] = self._settings.delay == 0 and own_share == 0
        self.count += 1


class Fragment:
    """Some of the weights, and their rounds."""

    def __init__(
        self,
        number: int,
        indices: list[int],
        names: list[str],
        variables: list[tf.Variable],
        reduction: Reduction,
        choices: list[Any] | None,
        rows: Any,
        settings: LocalSteps,
        state: OuterState,
    ) -> None:
        self._number, self._names, self._variables = number, names, variables
        self._reduction, self._choices = reduction, choices
        self._rows, self._settings = rows, settings
        self.steps = 0  # since its last round began
        self.begun = 0  # when, in ns since 1970
        self.has_contributed = True  # to its last round
        self._bytes = sum(each.shape.num_elements() * each.dtype.size for each in variables)
        self._first, self._state = indices[0], state
        self._round = np.isin(np.arange(state.rounds.shape[0]), indices).astype(np.int64)
        self._momenta = [state.momenta[index] for index in indices] if state.momenta else []
        self._global: list[tf.Tensor] = []
        self._rows_before: tf.Tensor | int = 0
        self._moved: list[tf.Tensor] = []  # of the round in flight
        self._started: list[split.StartedReduction] = []
        self._sums: list[tf.Tensor] = []
        with tf.init_scope():
            self._send_all = tf.function(self._send, autograph=False)
            self._update_all = tf.function(self._update, autograph=False)

    def keep_global(self) -> None:
        """The weights are the global ones now."""
        self._global = [store.wide(variable) for variable in self._variables]
        self._rows_before = tf.identity(self._rows)

    def begin(self) -> None:
        """Sends how far the weights have moved."""
        self._note_begin()
        rows = tf.identity(self._rows)
        self._moved, self._sums = self._send_all(self._global, rows - self._rows_before)
        self._rows_before = rows

    def _note_begin(self) -> None:
        self.begun = _engine.wall_nanos()
        step_counters.add("saved_bytes", max(self.steps - 1, 0) * self._bytes)
        self.steps = 0

    def end(self, own_share: float) -> tuple[tf.Tensor, tf.Tensor] | None:
        """Takes the result of the round.

        Returns:
            This worker's divergence, and the same relative to the norm of the average; `None` if
            the round was not one.
        """
        momentum = self._settings.momentum(int(self._state.rounds[self._first]))
        self._state.rounds.assign_add(self._round)
        factors = (tf.constant(momentum, tf.float64), tf.constant(own_share, tf.float64))
        self._global, *divergence = self._update_all(
            self._global, self._moved, self._sums, *factors
        )
        self._moved, self._sums = [], []
        return divergence[0], divergence[1]

    def abandon(self) -> None:
        """Nobody will wait for the round in flight."""
        split.forget(started.name for started in self._started)
        self._moved, self._sums = [], []

    def _send(self, weights: list[Any], rows: Any) -> tuple[list[Any], list[Any]]:
        """What has been sent, and the sums if they are awaited at once."""
        name = f"outer/rows/{self._number}"
        total = push_pull(rows, op=Sum, name=name, priority=_HIGHEST_PRIORITY)
        share = tf.math.divide_no_nan(tf.cast(rows, tf.float64), tf.cast(total, tf.float64))
        moved = self._changes(weights)
        sent = [self._reduction.prepare(each * tf.cast(share, each.dtype)) for each in moved]
        if self._settings.delay == 0:
            return moved, self._reduction.exchange_all(sent, self._names, variables=self._choices)
        started = split.start_reductions(
            sent,
            self._names,
            [variable.shape for variable in self._variables],
            self._reduction,
            self._choices,
        )
        self._started = [each for each in started if each is not None]
        return moved, []

    def _changes(self, weights: list[Any]) -> list[Any]:
        return [
            weight - store.wide(variable)
            for weight, variable in zip(weights, self._variables, strict=True)
        ]

    def _update(
        self, weights: list[Any], moved: list[Any], sums: list[Any], momentum: Any, own_share: Any
    ) -> tuple[list[Any], Any, Any]:
        """The outer optimizer: SGD, with Nesterov's momentum if there is one."""
        averages = sums or [started.wait() for started in self._started]
        results = []
        squares = of_average = tf.constant(0.0, tf.float64)
        for index, (weight, own, average) in enumerate(zip(weights, moved, averages, strict=True)):
            step = average
            if self._momenta:
                factor = tf.cast(momentum, weight.dtype)
                velocity = factor * self._momenta[index] + average
                self._momenta[index].assign(velocity)
                step = average + factor * velocity
            results.append(weight - tf.constant(self._settings.learning_rate, weight.dtype) * step)
            squares += tf.cast(tf.reduce_sum(tf.square(own - average)), tf.float64)
            of_average += tf.cast(tf.reduce_sum(tf.square(weight - average)), tf.float64)
            self._go_on_with(self._variables[index], results[index], own_share)
        divergence = tf.sqrt(squares)
        return results, divergence, tf.math.divide_no_nan(divergence, tf.sqrt(of_average))

    def _go_on_with(self, variable: tf.Variable, result: Any, own_share: Any) -> None:
        share = tf.cast(own_share, result.dtype)

        def mixed() -> Any:
            return share * store.wide(variable) + (1 - share) * result

        # Without a share of their own the workers have the same bits.
        value = tf.cond(tf.equal(own_share, 0), lambda: tf.identity(result), mixed)
        variable.assign(tf.cast(value, variable.dtype))
