"""The current update of an optimizer, so that its gradients are reduced once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import keras

from tf_byteps.types import Optimizer

_local = threading.local()


class Update:
    """The current update of an optimizer in this thread.

    Attributes:
        optimizer: a Keras optimizer.
        variables: the `keras.Variable`s that it updates.
        reduced: whether the gradients are those of all workers already.
        reduced_of: see `accumulation`.
    """

    def __init__(
        self, optimizer: Optimizer, variables: list[keras.Variable], outer: Update | None
    ) -> None:
        self.optimizer = optimizer
        self.variables = variables
        self.reduced: bool = outer is not None and outer.reduced
        self.reduced_of: Callable | None = None if outer is None else outer.reduced_of

    def reduce_once(self, gradients: list, reduce: Callable[[list, list], list]) -> list:
        """The gradients of all workers, reduced if they have not been.

        Args:
            gradients: of `variables`.
            reduce: takes a list of gradients and one of variables; returns the list of results.

        Returns:
            The list of gradients.
        """
        if self.reduced:
            return gradients
        self.reduced = True
        if self.reduced_of is not None:
            return self.reduced_of(self.variables)
        return reduce(gradients, self.variables)


def current() -> Update | None:
    """The innermost `Update` of this thread."""
    return getattr(_local, "update", None)


@contextlib.contextmanager
def updating(
    optimizer: keras.optimizers.Optimizer, variables: list, reduced: bool = False
) -> Iterator[Update]:
    """Notes an update, which an update within it goes on with.

    Args:
        optimizer: the optimizer that updates.
        variables: what it updates.
        reduced: whether the gradients are those of all workers already.
    """
    outer = current()
    _local.update = Update(optimizer, variables, outer)
    _local.update.reduced |= reduced
    try:
        yield _local.update
    finally:
        _local.update = outer
