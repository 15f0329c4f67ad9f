"""What `fit` needs of the framework that Keras runs on: a process has one."""

from collections.abc import Sequence
from typing import Any

import keras


class Framework:
    """A framework in which every step exchanges, and in which nothing is left to later steps."""

    def fingerprints(self, variables: Sequence[Any]) -> list[int]:
        """A 64-bit number for the value of each `keras.Variable`; other values give others."""
        raise NotImplementedError

    def last_rows(self, model: keras.Model) -> int | None:
        """The rows of this worker's piece in the last step of a model, or `None`."""
        raise NotImplementedError

    def is_foreign(self, optimizer: keras.optimizers.Optimizer) -> bool:
        """Whether an optimizer belongs to a strategy of another kind."""
        return False

    def finish_local_steps(self, model: keras.Model) -> None:
        """Gives all workers the global weights, if they have made local steps. A collective."""

    def makes_local_steps(self, model: keras.Model) -> bool:
        """Whether a model's workers make steps of their own between rounds."""
        return False

    def own_state(self, model: keras.Model, optimizers: Sequence[Any]) -> list[Any]:
        """The variables of optimizers that each worker keeps for itself."""
        return []

    def average_accumulated(self, optimizers: Sequence[Any]) -> None:
        """Sets what optimizers accumulate to the average over all workers. A collective."""

    def has_accumulated(self, optimizers: Sequence[Any]) -> bool:
        """Whether optimizers have accumulated gradients of this worker's rows alone."""
        return False


_current: Framework | None = None


def use(framework: Framework) -> None:
    """Sets the framework of this process."""
    global _current
    _current = framework


def current() -> Framework:
    """The framework of this process, which making a `BytePSStrategy` has set."""
    assert _current is not None
    return _current
