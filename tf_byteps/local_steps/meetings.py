"""How the workers of a quorum come together: who is in a round, and when it is due."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tf_byteps import _engine, runtime
from tf_byteps.declaration import Declaration
from tf_byteps.exchange import host
from tf_byteps.local_steps.settings import LocalSteps

_HIGHEST_PRIORITY = 2**31 - 1
# See kAdaptiveGrace in cc/base/tensor_description.h.
_NO_GRACE, _ADAPTIVE_GRACE = -2, -1
# In seconds. Without a request, which is lost with a connection, a worker comes after that time.
_LONGEST_WAIT = 1.0
_BETWEEN_LOOKS = 0.002


@dataclasses.dataclass(frozen=True)
class Attendance:
    """Who is in a round, the same on all workers.

    Attributes:
        table: an array of int64 of shape `[3, workers]`. Of each worker: 1 if it is in; how many
            rows its change is of; 1 if it makes no more steps before all have come together.
    """

    table: np.ndarray

    @property
    def members(self) -> int:
        """How many workers are in."""
        return int(self.table[0].sum())

    @property
    def rows(self) -> int:
        """Those of all members."""
        return int(self.table[1].sum())

    @property
    def stopped(self) -> np.ndarray:
        """Of each worker, whether it is in and makes no more steps."""
        return self.table[2] > 0

    def has(self, rank: int) -> bool:
        """Whether this worker is in."""
        return bool(self.table[0, rank])


class _Trainings:
    """Gives each training of this process a number: their rounds have names of their own."""

    def __init__(self) -> None:
        self._next = 0

    def new(self) -> int:
        self._next += 1
        return self._next - 1

    def keep_above(self, number: int) -> None:
        """Another worker has given a training this number."""
        self._next = max(self._next, number + 1)


_trainings = _Trainings()


class Meetings:
    """The exchanges in which workers say that they have come. Not thread-safe.

    All workers come to the same meetings in the same order, some of them later than others. What
    follows from a meeting's table is therefore the same on all before the next one.

    Args:
        settings: a `LocalSteps` with a quorum.
    """

    def __init__(self, settings: LocalSteps) -> None:
        self._settings = settings
        self._names: list[str] = []  # of the fragments' exchanges
        self._training = _trainings.new()
        self._stopped = np.zeros(0, bool)

    def add_fragment(self, name: str) -> None:
        """There is one more fragment, whose first weight is exchanged under `name`."""
        self._names.append(f"{name}/attendance")

    def begin(self) -> None:
        """Before the first step after the workers have come together. A collective.

        A worker may still come to rounds of a training that others have given up, or forgotten, and
        who joins an elastic job has had fewer trainings: they agree on the number of this one.
        """
        own = np.array(self._training, np.int32)
        self._training = int(host.exchange_all([own], ["outer/trainings"], kind="max")[0])
        _trainings.keep_above(self._training)
        self._stopped = np.zeros(runtime.size(), bool)
        _engine.declare(
            [
                Declaration(self._name(fragment), "int64", (3, runtime.size()), **self._terms())
                for fragment in range(len(self._names))
            ]
        )

    def give_up(self) -> None:
        """The workers may be in different rounds from now on."""
        self._training = _trainings.new()

    def named(self, name: str) -> str:
        """What an exchange is called in this training."""
        return f"{name}/{self._training}" if self._training else name

    @property
    def is_ending(self) -> bool:
        """Whether a quorum makes no more steps. From then on each round waits for all workers."""
        return int(self._stopped.sum()) >= self._quorum()

    def is_requested(self, fragment: int) -> bool:
        """Whether others have come to a round to which this worker has not.

        Where rounds wait for all workers, each comes after the same steps, or after its last one.
        """
        return self._required() < runtime.size() and _engine.is_requested(self._name(fragment))

    def await_request(self, fragment: int) -> None:
        """Waits for others, if this worker makes no more steps and they know it.

        It would be the first to come each time, and the others would be asked to after each step.
        """
        if not self._stopped[runtime.rank()] or self.is_ending:
            return
        latest = time.monotonic() + _LONGEST_WAIT
        while not self.is_requested(fragment) and time.monotonic() < latest:
            time.sleep(_BETWEEN_LOOKS)

    def meet(self, fragment: int, rows: int, makes_no_more_steps: bool) -> Attendance:
        """Comes to a fragment's next round. Waits for the quorum, or the window's end."""
        table = np.zeros((3, runtime.size()), np.int64)
        table[:, runtime.rank()] = 1, rows, makes_no_more_steps
        options = {**self._terms(), "priority": _HIGHEST_PRIORITY}
        (met,) = host.exchange_all([table], [self._name(fragment)], **options)
        attendance = Attendance(met)
        self._stopped |= attendance.stopped
        return attendance

    def _name(self, fragment: int) -> str:
        return self.named(self._names[fragment])

    def _quorum(self) -> int:
        # A job that is elastic may have fewer workers than when it began.
        return min(self._settings.quorum or runtime.size(), runtime.size())

    def _required(self) -> int:
        return runtime.size() if self.is_ending else self._quorum()

    def _terms(self) -> dict[str, Any]:
        backup_workers = runtime.size() - self._required()
        grace = self._settings.grace
        if backup_workers == 0:
            grace_ms = _NO_GRACE
        else:
            grace_ms = _ADAPTIVE_GRACE if grace is None else round(grace * 1000)
        return {"kind": "sum", "backup_workers": backup_workers, "grace_ms": grace_ms}


class QuorumSchedule:
    """In which steps rounds are due: as in `Schedule`, or earlier if others have come.

    The fragments take turns, so that all workers come to all rounds in one order.

    Args:
        settings: a `LocalSteps`.
    """

    def __init__(self, settings: LocalSteps) -> None:
        self._settings = settings
        self.restart()

    def restart(self) -> None:
        """All fragments have come together: the next rounds are counted from here."""
        self._step = 0
        self._number = 0  # of the next round
        self._ends: dict[int, int] = {}  # of rounds in flight, by fragment

    def advance(self, steps: int, is_requested: Callable[[int], bool]) -> Iterator[tuple[str, int]]:
        """Goes on by some steps.

        Args:
            steps: how many this worker has made since the last call.
            is_requested: a function of a fragment: whether others have come to its next round.

        Yields:
            What is due, in order: `("begin", fragment)` or `("end", fragment)`.
        """
        self._step += steps
        for _ in range(self._settings.fragments):
            due = self._due(self._number)
            if self._step < due and is_requested(self._number % self._settings.fragments):
                self._step = due
            for fragment in self.in_flight():
                if self._ends[fragment] <= self._step:
                    del self._ends[fragment]
                    yield "end", fragment
            if self._step < due:
                return
            if self._number % self._settings.fragments in self._ends:
                del self._ends[self._number % self._settings.fragments]
                yield "end", self._number % self._settings.fragments
            fragment = self.take()
            yield "begin", fragment
            if self._settings.delay == 0:
                yield "end", fragment
            else:
                self._ends[fragment] = self._step + self._settings.delay
        # Steps that are made together may have gone past several rounds of a fragment: it has one.
        self._step = min(self._step, self._due(self._number) - 1)

    def take(self) -> int:
        """The fragment whose turn it is. The next one's comes then."""
        self._number += 1
        return (self._number - 1) % self._settings.fragments

    def in_flight(self) -> list[int]:
        """The fragments whose round has begun and not ended, the oldest first."""
        return list(self._ends)

    def _due(self, number: int) -> int:
        turn, fragment = divmod(number, self._settings.fragments)
        every = self._settings.steps
        return turn * every + every * (fragment + 1) // self._settings.fragments
