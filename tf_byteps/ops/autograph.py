"""AutoGraph calls what this package has as it is, as it does with TensorFlow and Keras.

It would rewrite each function of tf_byteps that a program's own `tf.function` calls, which takes
seconds of a training's start, and nothing here needs it.
"""

from collections.abc import Callable
from typing import Any

from tf_byteps.private.tensorflow import autograph_api, autograph_config, autograph_context


def install() -> None:
    """Tells AutoGraph. Once per process."""
    rule = autograph_config.DoNotConvert("tf_byteps")
    autograph_config.CONVERSION_RULES = (rule, *autograph_config.CONVERSION_RULES)


def as_called_by_program(function: Callable[..., Any]) -> Any:
    """A function of the program that tf_byteps calls for it: converted if its caller is.

    Args:
        function: what a program gave to tf_byteps.

    Returns:
        A function with the same arguments.
    """
    context = autograph_context.control_status_ctx()
    return autograph_api.tf_convert(function, context, convert_by_default=False)
