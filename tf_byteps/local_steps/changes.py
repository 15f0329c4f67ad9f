"""Asynchronous training: each worker sends what each of its steps has changed, and waits for none.

The servers hold the weights. After a step a worker sends how far its weights have moved, divided by
the number of workers, and goes on with the answer: the sum of all changes that had arrived. See
`tf_byteps.ops.store`.

A step costs each worker the bytes of the weights once up and once down, however many workers there
are. Memory: one more copy of the weights on the worker, and on the servers the weights and what is
arriving.
"""

import dataclasses
import numbers
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_byteps import _engine, step_counters
from tf_byteps.exchange.arguments import BACKWARD_ORDER
from tf_byteps.ops import Sum, push_pull, store
from tf_byteps.ops.library import kernels
from tf_byteps.private.tensorflow import ResourceVariable


@dataclasses.dataclass(frozen=True)
class Staleness:
    """The settings of an asynchronous training.

    Attributes:
        steps: by how many steps a worker may be ahead of the slowest, 1 or more; or `"unbounded"`.

    Raises:
        TypeError: it is neither a number nor a string.
        ValueError: it is out of range.
    """

    steps: int | str
    #: There are no steps before that exchange gradients, as with local steps.
    warmup_steps: int = dataclasses.field(default=0, init=False)

    def __post_init__(self) -> None:
        given = self.steps
        if given == "unbounded":
            return
        if isinstance(given, bool) or not isinstance(given, (numbers.Integral, str)):
            raise TypeError(f"staleness must be a number of steps or 'unbounded', got {given!r}")
        if isinstance(given, str) or not 1 <= given < 2**31:
            raise ValueError(f"staleness must be 0 or more, or 'unbounded', got {given!r}")

    @property
    def bound(self) -> int:
        """As the exchange takes it."""
        return store.UNBOUNDED if isinstance(self.steps, str) else int(self.steps)


class Changes:
    """The exchanges of an asynchronous training. Not thread-safe.

    All workers call `begin_steps`, `end_steps` and `finish` in the same order, each at its own
    pace between two calls of `finish`.

    Args:
        names: of the weights, those of their exchanges.
        variables: the weights, `tf.Variable`s, the same on all workers now.
        settings: a `Staleness`.

    Attributes:
        rows: a scalar variable of int64, to which each step adds the rows that it trains on.
        count: how often the workers have come together.
    """

    def __init__(
        self, names: Sequence[str], variables: Sequence[tf.Variable], settings: Staleness
    ) -> None:
        self.count = 0
        self.is_ending = False  # each makes all of its steps
        with tf.init_scope(), tf.device(variables[0].device):
            # Not `tf.Variable`: the workers need not agree about it.
            self.rows: Any = ResourceVariable(0, dtype=tf.int64, trainable=False)
        # The last counts the changes of all workers.
        self._names = [*(f"store/{name}" for name in names), f"store/changes of {names[0]}"]
        self._variables = list(variables)
        self._bound = settings.bound
        self._steps = 0  # since the workers came together
        self._base: list[tf.Tensor] = []  # what the weights were after the last exchange
        self._held = 0  # changes that these have
        with tf.init_scope():
            self._begin_all = tf.function(self._begin, autograph=False)
            self._send_all = tf.function(self._send, autograph=False)

    def begin_steps(self) -> None:
        """To be called before a step. The first one begins with the weights as they are."""
        if self._steps == 0:
            _engine.begin_stores(self._names)
            self._base, held = self._begin_all()
            self._held = int(held)

    def end_steps(self, steps: int = 1) -> None:
        """To be called after some steps: sends their change, and takes what the servers hold."""
        self._steps += steps
        before = self._held
        self._base, held = self._send_all(self._base)
        self._held = int(held)
        step_counters.add("asynchronous_steps", steps)
        step_counters.add("stale_changes", max(self._held - before - 1, 0) * steps)

    def finish(self) -> None:
        """Gives all workers the same weights, with the changes of all. A collective."""
        if self._steps == 0:
            return
        self._meet()  # all changes are there
        self._base, _ = self._send_all(self._base)
        self._meet()  # all have them: new ones may come
        self._steps = 0
        self.count += 1

    def abandon(self) -> None:
        """After a failure: the weights stay this worker's own until all begin anew."""
        self._steps = 0

    @staticmethod
    def _meet() -> None:
        push_pull(tf.constant(0, tf.int32), op=Sum, name="store/meeting")

    def _begin(self) -> tuple[list[Any], Any]:
        return self._take([store.wide(variable) for variable in self._variables], 0)

    def _send(self, base: list[Any]) -> tuple[list[Any], Any]:
        workers = kernels().byte_ps_place(what="size")
        return self._take(
            [
                (store.wide(variable) - before) / tf.cast(workers, before.dtype)
                for variable, before in zip(self._variables, base, strict=True)
            ],
            1,
        )

    def _take(self, sent: list[Any], changes: int) -> tuple[list[Any], Any]:
        sent = [*sent, tf.constant(changes, tf.int64)]
        *held, count = store.exchange(sent, self._names, BACKWARD_ORDER, self._bound)
        base = []
        for variable, value in zip(self._variables, held, strict=True):
            rounded = tf.cast(value, variable.dtype)
            variable.assign(rounded)
            base.append(store.wide(rounded))
        return base, count
