"""What each process makes for itself: a forked one does not go on with its parent's."""

import functools
import os
from collections.abc import Callable
from typing import TypeVar

ValueT = TypeVar("ValueT")


def per_process(make: Callable[[], ValueT]) -> Callable[[], ValueT]:
    """Decorates a function that is called once in each process, also in a forked one.

    Args:
        make: makes the value.

    Returns:
        A function that returns this process's value.
    """

    @functools.cache
    def made_by(process: int) -> ValueT:
        del process  # a key of the cache
        return make()

    @functools.wraps(make)
    def of_this_process() -> ValueT:
        return made_by(os.getpid())

    return of_this_process
