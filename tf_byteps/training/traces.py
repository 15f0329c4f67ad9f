"""By what TensorFlow tells the traces of a `tf.function` apart: besides arguments also by ours."""

import threading
from collections.abc import Callable, Hashable

from tensorflow.core.function.polymorphism.function_cache import FunctionContext

from tf_byteps.private.tensorflow import function_context
from tf_byteps.wrapping import wrap

_lock = threading.Lock()
_keys: list[Callable[[], Hashable]] = []


def depend_on(key: Callable[[], Hashable]) -> None:
    """Has every function of the process trace again where a key has another value.

    Args:
        key: called when a function is; the same one counts once. `None`: all traces may be used.
    """
    with _lock:
        if not _keys:
            wrap(function_context, "make_function_context", _with_keys)
        if key not in _keys:
            _keys.append(key)


def _with_keys(
    original: Callable[..., FunctionContext], scope_type: object = None
) -> FunctionContext:
    made = original(scope_type)
    values = [(number, key()) for number, key in enumerate(_keys)]
    chosen = tuple(pair for pair in values if pair[1] is not None)
    return FunctionContext(made.context, (made.scope_type, chosen)) if chosen else made
