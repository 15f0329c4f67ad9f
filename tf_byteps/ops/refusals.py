"""Calls of an exchange that one worker refuses by itself: the others hear of it at once.

They may have called it rightly, and wait. A worker that sends another shape or dtype meets them at
the exchange, where the servers find it out. One whose arguments cannot be exchanged at all sends
nothing: it gives up the round instead.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import tensorflow as tf

from tf_byteps import _engine, runtime

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


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
                        reason = f"{type(error).__name__}: {error}".splitlines()[0]
                        _engine.give_up_rounds(
                            names_of(**arguments.arguments), f"it refused the call: {reason}"
                        )
                raise

        return cast(FunctionT, wrapper)

    return decorate
