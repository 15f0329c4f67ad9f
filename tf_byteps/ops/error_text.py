"""Errors of eager exchanges without what TensorFlow writes around their sentence."""

import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar, cast

import tensorflow as tf

from tf_byteps import _engine

# The function that TensorFlow makes of an eager operation, and that operation's names.
_AROUND = re.compile(r"^\{\{function_node [^}]*\}\} ?| \[Op:\w+\](?: name: ?[^\n]*)?$")


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def in_plain_words(function: FunctionT) -> FunctionT:
    """Decorates an exchange: its errors in eager code say what the engine says, and no more."""

    @functools.wraps(function)
    def wrapper(*args: object, **kwargs: object) -> Any:
        try:
            return function(*args, **kwargs)
        except tf.errors.OpError as error:
            if tf.executing_eagerly():
                error._message = _AROUND.sub("", error.message)
            raise

    return cast(FunctionT, wrapper)


def as_tensorflows(error: _engine.EngineError) -> Exception:
    """The error that an operation would have raised where the engine's Python module did."""
    kind = "".join(map(str.capitalize, error.code.split("_"))) + "Error"
    return getattr(tf.errors, kind, tf.errors.UnknownError)(None, None, str(error))
