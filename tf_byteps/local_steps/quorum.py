"""Outer rounds that do not wait for all workers.

A round has two exchanges. In the first each worker says that it has come, and for how many rows it
has trained. A server ends that exchange when the quorum is there and a grace window is over; its
answer, the same for all, says who is in the round. Those send their changes, weighted by their
rows. Who comes later gets the answers all the same, goes on with the new global weights, and adds
its own change to what it sends in its next round.

When the first worker has come, the server asks the others to. They come after the step that they
are making, however many they have made: a slow worker makes fewer steps, not fewer rounds.

Workers that make no more steps say so where they come. Once a quorum has, the others should stop,
too, and each round waits for all workers: the last ones have everybody's changes.

Cost beside that of `Rounds`: three numbers for each worker in each round. Memory: a copy of the
fragment's weights on a worker whose change waits for its next round, and the sums of the last two
rounds, for those who lack them when a server is lost.
"""

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_byteps import runtime, step_counters
from tf_byteps.exchange import host
from tf_byteps.exchange.compression import check_with_cross_step
from tf_byteps.exchange.compression_choice import of_variables
from tf_byteps.exchange.compressor import codec_of
from tf_byteps.local_steps import rejoining
from tf_byteps.local_steps.meetings import Attendance, Meetings, QuorumSchedule
from tf_byteps.local_steps.rounds import Fragment, Rounds
from tf_byteps.training import traces

_NOTHING = traces.Dependence.NOTHING


class QuorumFragment(Fragment):
    """Some of the weights, and their rounds of those who have come."""

    def __init__(self, meetings: Meetings, *args: Any) -> None:
        super().__init__(*args)
        self._meetings = meetings
        self._compressors = of_variables(
            self._reduction.compression, self._choices or [None] * len(self._variables)
        )
        for compressor in self._compressors:
            check_with_cross_step(compressor)
        self._seen_rows = 0
        self._carried: list[tf.Tensor] = []  # changes that came late, each times its rows
        self._carried_rows = 0
        self._handles: list[Any] = []
        self._contexts: list[Any] = []
        self._has_round = False
        self._sent: rejoining.Sent | None = None  # to the round in flight
        self._rows_in_flight = 0
        self.rows_done = 0  # of all workers, that are in the global weights
        self.is_new = False  # this worker's weights are none of this training yet
        self.begin_again()
        with tf.init_scope():
            self._weigh_all = tf.function(self._weigh, autograph=False)
            self._keep_all = tf.function(self._keep, autograph=False)

    def keep_global(self) -> None:
        """The weights are the global ones now."""
        super().keep_global()
        self._seen_rows = int(self._rows)
        self._carried, self._carried_rows = [], 0

    def meet(self, makes_no_more_steps: bool) -> Attendance:
        """Comes to the next round, and sends this worker's change if it is in."""
        self._note_begin()
        now = int(self._rows)
        rows = now - self._seen_rows
        attendance = self._meetings.meet(
            self._number, rows + self._carried_rows, makes_no_more_steps
        )
        self._seen_rows = now
        stopped = attendance.stopped
        self._complete = stopped | self._complete if self._complete.size else stopped
        # If none of its members has done anything there is no sum, but this worker may be late.
        self._has_round = attendance.rows > 0
        self.has_contributed = is_in = attendance.has(runtime.rank())
        total = max(attendance.rows, 1)
        counts = (tf.constant(rows, tf.float64), tf.constant(total, tf.float64))
        with traces.depending_on(_NOTHING):
            self._moved, shares, carried = self._weigh_all(self._global, *counts, self._carried)
        self._rows_in_flight = attendance.rows
        self._sent = None
        if is_in:
            self._sent = rejoining.Sent(rows, self._carried, self._carried_rows)
            self._carried, self._carried_rows = [], 0
        elif rows > 0:
            self._carried, self._carried_rows = carried, self._carried_rows + rows
            step_counters.add("late_changes", 1)
        if self._has_round:
            self._start(shares, attendance, is_in)
        return attendance

    @property
    def is_complete(self) -> bool:
        """Whether all that any worker has done before `finish` has been in a round."""
        return bool(self._complete.any() and self._complete.all())

    def begin_again(self) -> None:
        """Workers make steps again."""
        self._complete = np.zeros(0, bool)  # of each worker; empty: nobody has made its last step

    def _start(self, shares: list[tf.Tensor], attendance: Attendance, is_in: bool) -> None:
        self._handles, self._contexts = [], []
        for name, share, compressor in zip(self._names, shares, self._compressors, strict=True):
            sent, context = compressor.compress(share)
            self._contexts.append(context)
            self._handles.append(
                host.start(
                    sent.numpy(),
                    self._meetings.named(name),
                    kind="sum",
                    backup_workers=runtime.size() - attendance.members,
                    codec=codec_of(compressor) if sent.dtype == tf.float32 else "",
                    contributes=is_in,
                )
            )

    def end(self, own_share: float) -> tuple[tf.Tensor, tf.Tensor] | None:
        """Takes the result of the round; `None` if there was nothing to exchange."""
        if not self._has_round:
            with traces.depending_on(_NOTHING):
                self._keep_all(self._global, tf.constant(own_share, tf.float64))
            self._moved = []
            return None
        self._sums = [
            compressor.decompress(tf.convert_to_tensor(host.wait(handle)), context)
            for handle, compressor, context in zip(
                self._handles, self._compressors, self._contexts, strict=True
            )
        ]
        self._handles, self._contexts, self._has_round = [], [], False
        self.rows_done += self._rows_in_flight
        with traces.depending_on(_NOTHING):
            return super().end(own_share)

    @property
    def rounds_done(self) -> tuple[int, int]:
        """How many rounds these weights have had, and of how many rows."""
        return int(self._state.rounds[self._first]), self.rows_done

    def go_on(self, root_rank: int, rounds: int, rows: int) -> None:
        """Goes on from another worker's global weights, with what is not in them yet. A collective.

        Args:
            root_rank: the worker that has them.
            rounds: how many rounds they have had; negative: none, as all workers are new.
            rows: these rounds'.
        """
        own = [*self._global, *self._momenta]
        names = [f"{self._names[0]}/newest/{number}" for number in range(len(own))]
        taken = rejoining.take(names, own, root_rank)
        # A worker that comes before the first round ends has no global weights either.
        is_behind = rounds > self.rounds_done[0] or (self.is_new and rounds >= 0)
        self.is_new = False
        unsent = self._unsent(is_behind)
        if is_behind:
            for momentum, value in zip(self._momenta, taken[len(self._global) :], strict=True):
                momentum.assign(value)
            self._state.rounds.assign(np.where(self._round > 0, rounds, self._state.rounds.numpy()))
            self._global = [tf.convert_to_tensor(each) for each in taken[: len(self._global)]]
            self.rows_done = rows
        if is_behind or self._moved:
            for variable, weight, each in zip(self._variables, self._global, unsent, strict=True):
                variable.assign(tf.cast(weight - each, variable.dtype))
        self.abandon()
        self.begin_again()

    def _unsent(self, is_behind: bool) -> list[tf.Tensor]:
        """How far the weights have moved since a change of theirs was sent, or kept for later."""
        moved = self._changes(self._global)
        if not self._moved:  # no round is in flight
            return moved
        if self._sent is not None and not is_behind:  # the round has never been
            self._carried, self._carried_rows = self._sent.carried, self._sent.carried_rows
            self._seen_rows -= self._sent.rows
            return moved
        return [each - sent for each, sent in zip(moved, self._moved, strict=True)]

    def abandon(self) -> None:
        """Nobody will wait for the round in flight."""
        self._handles, self._contexts, self._has_round = [], [], False
        self._moved, self._sums = [], []

    def _weigh(
        self, weights: list[Any], rows: Any, total: Any, carried: Sequence[Any]
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """How far the weights have moved, this worker's part of the average, and it undivided."""
        share = tf.math.divide_no_nan(rows, total)
        moved = self._changes(weights)
        shares = [each * tf.cast(share, each.dtype) for each in moved]
        waiting = [each * tf.cast(rows, each.dtype) for each in moved]
        if carried:
            shares = [
                each + before / tf.cast(total, each.dtype)
                for each, before in zip(shares, carried, strict=True)
            ]
            waiting = [each + before for each, before in zip(waiting, carried, strict=True)]
        return moved, shares, waiting

    def _keep(self, weights: list[Any], own_share: Any) -> None:
        for variable, weight in zip(self._variables, weights, strict=True):
            self._go_on_with(variable, weight, own_share)


_all_rounds: weakref.WeakSet["QuorumRounds"] = weakref.WeakSet()


class QuorumRounds(Rounds):
    """`Rounds` to which workers come each at its own pace. Not thread-safe.

    All workers call `finish` equally often, with at least one step or `take_part` before each.

    Attributes:
        is_ending: whether a quorum waits in `finish`: this worker should make no more steps.
        has_begun: whether this worker has made steps, or goes on from those of others.
    """

    _fragments: list[QuorumFragment]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.has_begun = self._is_open = False  # the latter: since the last `finish`
        self._turns = QuorumSchedule(self._settings)
        _all_rounds.add(self)

    def _new_fragment(self, *args: Any) -> QuorumFragment:
        number, _, names = args[:3]
        if number == 0:
            self._meetings = Meetings(self._settings)
        self._meetings.add_fragment(names[0])
        return QuorumFragment(self._meetings, *args)

    def begin_steps(self) -> None:
        """To be called before a local step. A collective if it is the first since `finish`."""
        if self._steps == 0:
            self.begin_meetings()
        super().begin_steps()
        self.has_begun = self._is_open = True

    def take_part(self) -> None:
        """To be called before `finish` if others may have made steps. A collective if none was."""
        if not self._is_open:
            self.begin_steps()
        self._steps = max(self._steps, 1)

    def begin_meetings(self) -> None:
        """The part of `begin_steps` that is a collective."""
        self._meetings.begin()

    def end_steps(self, steps: int = 1) -> None:
        """To be called after some local steps: comes to the rounds that are due.

        Waits for a quorum where one is.

        Args:
            steps: how many steps there were since the last call.

        Raises:
            RuntimeError: other rounds have begun, and have not been finished.
        """
        self._check_alone()
        self._note_steps(steps)
        for event, fragment in self._turns.advance(steps, self._meetings.is_requested):
            if event == "begin":
                self._fragments[fragment].meet(makes_no_more_steps=False)
                self.is_ending = self._meetings.is_ending
            else:
                self._end(fragment, self._settings.own_share)

    def _check_alone(self) -> None:
        """Workers that are in different rounds of two trainings would wait for each other."""
        if self._steps == 0 and self._has_others():
            gc.collect()  # a training that an error has ended
            if self._has_others():
                raise RuntimeError(
                    "two trainings with a quorum take turns in their steps: workers that are at "
                    "different steps would wait for each other forever. Call finish of the first, "
                    "or give the weights of both to one OuterSync"
                )

    def _has_others(self) -> bool:
        return any(each is not self and each._steps > 0 for each in _all_rounds)

    def finish(self) -> None:
        """Ends all rounds, so that the workers have the global weights. A collective.

        There are rounds until all that the workers have done has been in one.
        """
        self._is_open = False
        if self._steps == 0:
            return
        for fragment in self._turns.in_flight():
            self._end(fragment, self._settings.own_share)
        while not all(each.is_complete for each in self._fragments):
            fragment = self._turns.take()
            self._meetings.await_request(fragment)
            self._fragments[fragment].meet(makes_no_more_steps=True)
            self._end(fragment, own_share=0.0)
        for each in self._fragments:
            each.begin_again()
        self._turns.restart()
        self._steps = 0
        self.is_ending = False

    @property
    def rows_done(self) -> int:
        """How many rows of all workers are in the global weights of the first fragment."""
        return self._fragments[0].rows_done

    def rejoin(self, is_new: bool) -> None:
        """Goes on when the workers of an elastic job have changed. A collective.

        Args:
            is_new: whether this worker was not there before.
        """
        for fragment in self._fragments if is_new else ():
            fragment.keep_global()
            fragment.is_new = True
        of_fragments = [each.rounds_done for each in self._fragments]
        for fragment, newest in zip(
            self._fragments, rejoining.newest(of_fragments, is_new), strict=True
        ):
            fragment.go_on(*newest)
        self._meetings.begin()
        self._turns.restart()
        self._steps = 1  # there may be changes which are in no round yet
        self.has_begun = self._is_open = True
        self.is_ending = False

    def abandon(self) -> None:
        """Gives up what is in flight, after a failure. The weights stay this worker's own."""
        for fragment in self._fragments:
            fragment.abandon()
            fragment.begin_again()
        self._meetings.give_up()
        self._turns.restart()
        self._steps = 0
        self.has_begun = self._is_open = False
        self.is_ending = False
