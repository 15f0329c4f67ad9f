"""How tf_byteps changes methods of other libraries while they run."""

import functools
from collections.abc import Callable
from typing import Any


def wrap(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    """Replaces an attribute that can be called.

    Args:
        owner: the class or module that has it.
        name: its name.
        replacement: a function that is called with the original before the call's own arguments.
    """
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        return replacement(original, *args, **kwargs)

    setattr(owner, name, wrapper)
