"""How tf_byteps changes methods of other libraries while they run."""

import functools
from collections.abc import Callable
from typing import Any

# An owner, the name of its attribute, and what `wrap` replaces that by.
Change = tuple[Any, str, Callable[..., Any]]


def wrap(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    """Replaces an attribute that can be called.

    Args:
        owner: the class or module that has it.
        name: its name.
        replacement: a function that is called with the original before the call's own arguments.
    """
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    setattr(owner, name, wrapper)
