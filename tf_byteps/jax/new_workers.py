"""What is forgotten when the workers of an elastic job have changed."""

from collections.abc import Callable

import jax

_listeners: list[Callable[[], None]] = []


def on_change(listener: Callable[[], None]) -> None:
    """Has a function called on each worker that stays, before it meets the new ones.

    Args:
        listener: takes nothing.
    """
    _listeners.append(listener)


def changed() -> None:
    """The workers have changed: all functions are compiled anew when they are next called.

    A program may hold what was true of the workers before, such as their number.
    """
    for listener in _listeners:
        listener()
    jax.clear_caches()
