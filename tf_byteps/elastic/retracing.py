"""Functions that were traced for other workers are traced again (protocol rule 16)."""

from collections.abc import Callable
from typing import Any

from tf_byteps.private.tensorflow import function_context
from tf_byteps.wrapping import wrap

_epochs = 0


def next_epoch() -> None:
    """Makes every `tf.function` of the process trace again when it is next called.

    A trace may hold what was true of the workers before, such as their number. TensorFlow keeps a
    function's traces by what they depend on besides arguments; here that is one thing more.
    """
    global _epochs
    if _epochs == 0:
        wrap(function_context, "make_function_context", _with_epoch)
    _epochs += 1


def _with_epoch(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    made = original(*args, **kwargs)
    own = made.context._replace(xla_context_id=(_epochs, made.context.xla_context_id))
    return made._replace(context=own)
