"""By what TensorFlow tells the traces of a `tf.function` apart: besides arguments also by ours."""

import contextlib
import enum
import threading
from collections.abc import Callable, Hashable, Iterator

from tensorflow.core.function.polymorphism.function_cache import FunctionContext

from tf_byteps.private.tensorflow import function_context
from tf_byteps.wrapping import wrap

_lock = threading.Lock()
_keys: list[Callable[[], Hashable]] = []
_local = threading.local()


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


class Dependence(enum.Enum):
    """What of the other workers a trace depends on."""

    EPOCH = "all: they are traced again for others"
    PLACE = "how many they are, and this worker's place among them"
    NOTHING = "nothing"


@contextlib.contextmanager
def depending_on(what: Dependence) -> Iterator[None]:
    """Meanwhile this thread calls functions whose traces depend on less than all.

    Args:
        what: of the other workers they depend on.
    """
    before = dependence()
    _local.dependence = what
    try:
        yield
    finally:
        _local.dependence = before


def dependence() -> Dependence:
    """What functions depend on that this thread calls now."""
    return getattr(_local, "dependence", Dependence.EPOCH)


def _with_keys(
    original: Callable[..., FunctionContext], scope_type: object = None
) -> FunctionContext:
    made = original(scope_type)
    values = [(number, key()) for number, key in enumerate(_keys)]
    chosen = tuple(pair for pair in values if pair[1] is not None)
    return FunctionContext(made.context, (made.scope_type, chosen)) if chosen else made
