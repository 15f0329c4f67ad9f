"""The update of an optimizer that is under way, so that its gradients are reduced once."""

import contextlib
import threading

_local = threading.local()


class Update:
    """An optimizer's update under way in this thread.

    Attributes:
        optimizer: a Keras optimizer.
        variables: the `keras.Variable`s that it updates.
        reduced: whether the gradients are those of all workers already.
        reduced_of: see `accumulation`.
    """

    def __init__(self, optimizer, variables, outer):
        self.optimizer = optimizer
        self.variables = variables
        self.reduced = outer is not None and outer.reduced
        self.reduced_of = None if outer is None else outer.reduced_of


def current():
    """The innermost `Update` of this thread, or `None`."""
    return getattr(_local, "update", None)


@contextlib.contextmanager
def updating(optimizer, variables, reduced=False):
    """Notes an update, which an update within it goes on with."""
    outer = current()
    _local.update = Update(optimizer, variables, outer)
    _local.update.reduced |= reduced
    try:
        yield _local.update
    finally:
        _local.update = outer
