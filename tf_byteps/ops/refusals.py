"""Calls of an exchange that one worker refuses by itself: the others hear of it at once.

They may have called it rightly, and wait. A worker that sends another shape or dtype meets them at
the exchange, where the servers find it out. One whose arguments cannot be exchanged at all sends
nothing: it gives up the round instead.
"""

import contextlib
import functools
import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

import tensorflow as tf

from tf_byteps import _engine, runtime
from tf_byteps.declaration import Declaration

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

# For the scheduler to say where the round is given up, if no exchange had this name before.
_SECONDS = 10.0
_PAUSE_SECONDS = 0.001


def reported_to_the_others(names_of: Callable[..., list[str]]) -> Callable[[FunctionT], FunctionT]:
    """Decorates an exchange: in eager code the other workers learn that a call is refused.

    Args:
        names_of: a function of the exchange's arguments: the names of what it sends.
    """

    def decorate(function: FunctionT) -> FunctionT:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def wrapper(*args: object, **kwargs: object) -> Any:
            try:
                return function(*args, **kwargs)
            except (TypeError, ValueError, NotImplementedError) as error:
                if tf.executing_eagerly() and runtime.is_initialized() and runtime.size() > 1:
                    # Who cannot say which exchange it is has nothing to tell.
                    with contextlib.suppress(Exception):
                        arguments = signature.bind(*args, **kwargs)
                        arguments.apply_defaults()
                        _refuse(names_of(**arguments.arguments), error)
                raise

        return cast(FunctionT, wrapper)

    return decorate


def _refuse(names: list[str], error: Exception) -> None:
    """Gives up the next rounds of these names."""
    reason = f"it refused the call: {type(error).__name__}: {error}".splitlines()[0]
    _engine.declare([Declaration(name, "uint8", (1,)) for name in names])
    begin, end = _engine.next_rounds(), time.monotonic() + _SECONDS
    while names and time.monotonic() < end:
        _engine.give_up_rounds(names, reason)  # nothing happens until a name has a place
        rounds = _engine.next_rounds()
        names = [name for name in names if rounds.get(name, 0) == begin.get(name, 0)]
        time.sleep(_PAUSE_SECONDS)
