"""What a training with local steps is asked for, and what it does if nothing is said."""

import dataclasses
import numbers

#: Outer optimizers, with their learning rate.
_LEARNING_RATES = {"average": 1.0, "diloco": 0.7}
# Momentum 0.9 overshoots in trainings of few rounds. So it begins low, and is at its full value
# when a training has shown to be a long one.
_MOMENTUM = 0.9
_FIRST_MOMENTUM = 0.6
_FIRST_ROUNDS = 50
_RISING_ROUNDS = 50
# In seconds: beyond it nobody would call it a window.
_MOST_GRACE = 86400.0


@dataclasses.dataclass(frozen=True)
class LocalSteps:
    """The settings of a training with local steps.

    Attributes:
        steps: how many steps a worker makes between two outer rounds.
        outer: `"average"` or `"diloco"`.
        outer_learning_rate: what the average of the workers' changes is multiplied by; `None`: 1
            with `"average"`, 0.7 with `"diloco"`.
        outer_momentum: the Nesterov momentum of the outer optimizer; `None`: 0 with `"average"`;
            with `"diloco"` 0.6 in the first 50 rounds, then rising to 0.9 in 50 more.
        fragments: into how many parts the weights are split, each with rounds of its own.
        delay: how many steps later than a round begins the workers take its result. The exchange
            is in flight meanwhile.
        mix: the share of a worker's own weights in what it goes on with after a round; `None`: 0,
            with a delay 0.5.
        warmup_steps: how many steps exchange gradients as without local steps, at the beginning.
        quorum: how many workers must have come before a round ends; `None`: all, and rounds come
            after the same steps on all.
        grace: how many seconds a round waits for more workers then; `None`: as their spread
            suggests.

    Raises:
        TypeError: a number is of another type.
        ValueError: a number is out of range, or there is no such `outer`.
    """

    steps: int
    outer: str = "average"
    outer_learning_rate: float | None = None
    outer_momentum: float | None = None
    fragments: int = 1
    delay: int = 0
    mix: float | None = None
    warmup_steps: int = 0
    quorum: int | None = None
    grace: float | None = None

    def __post_init__(self) -> None:
        _check_whole("local_steps", self.steps, 1)
        _check_whole("fragments", self.fragments, 1)
        _check_whole("delay", self.delay, 0)
        _check_whole("warmup_steps", self.warmup_steps, 0)
        if self.quorum is not None:
            _check_whole("quorum", self.quorum, 1)
        elif self.grace is not None:
            raise ValueError(
                f"grace is {self.grace!r}, but quorum is not set: a round that waits for all "
                "workers has no grace window; say how many workers a round needs"
            )
        if self.outer not in _LEARNING_RATES:
            possible = " or ".join(map(repr, _LEARNING_RATES))
            raise ValueError(f"outer must be {possible}, got {self.outer!r}")
        _check_range("outer_learning_rate", self.outer_learning_rate, 0, float("inf"))
        _check_range("outer_momentum", self.outer_momentum, 0, 1)
        _check_range("mix", self.mix, 0, 1)
        _check_range("grace", self.grace, 0, _MOST_GRACE)
        if self.fragments > self.steps:
            raise ValueError(
                f"fragments is {self.fragments} and local_steps is {self.steps}: at most one "
                "fragment can begin its round in a step; use fewer fragments or more local steps"
            )
        if self.delay >= self.steps:
            raise ValueError(
                f"delay is {self.delay} and local_steps is {self.steps}: a round must end before "
                "the next one of the same weights begins; use a shorter delay or more local steps"
            )

    def check_job(self, workers: int, is_elastic: bool, is_deterministic: bool) -> None:
        """Refuses a quorum that a job cannot have.

        Args:
            workers: how many the job has.
            is_elastic: whether that changes.
            is_deterministic: whether results may depend on when workers come.

        Raises:
            ValueError: the job cannot have it.
        """
        if self.quorum is None:
            return
        if self.quorum > workers and not is_elastic:
            raise ValueError(
                f"quorum is {self.quorum}, and the job has {workers} workers: no round would ever "
                "end; use a smaller quorum"
            )
        if is_deterministic and workers > 1:
            raise ValueError(
                f"quorum is {self.quorum}, and the job is deterministic: who is in a round depends "
                "on when workers arrive; choose one of them"
            )

    @property
    def learning_rate(self) -> float:
        """Of the outer optimizer."""
        given = self.outer_learning_rate
        return _LEARNING_RATES[self.outer] if given is None else float(given)

    @property
    def own_share(self) -> float:
        """The share of a worker's own weights in what it goes on with after a round."""
        if self.mix is not None:
            return float(self.mix)
        return 0.5 if self.delay else 0.0

    @property
    def has_momentum(self) -> bool:
        """Whether the outer optimizer ever has momentum."""
        return self.momentum(_FIRST_ROUNDS + _RISING_ROUNDS) > 0

    def momentum(self, rounds: int) -> float:
        """The outer optimizer's momentum in the next round.

        Args:
            rounds: how many rounds these weights have had.
        """
        if self.outer_momentum is not None:
            return float(self.outer_momentum)
        if self.outer == "average":
            return 0.0
        risen = min(max(rounds - _FIRST_ROUNDS, 0) / _RISING_ROUNDS, 1.0)
        return _FIRST_MOMENTUM + (_MOMENTUM - _FIRST_MOMENTUM) * risen


def _check_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be {least} or more, got {value}")


def _check_range(name: str, value: object, least: float, below: float) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not least <= value < below:
        limits = f"{least} or more" if below == float("inf") else f"in [{least}, {below})"
        raise ValueError(f"{name} must be {limits}, got {value}")
