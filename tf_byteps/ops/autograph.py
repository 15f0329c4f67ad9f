"""AutoGraph calls what this package has as it is, as it does with TensorFlow and Keras.

It would rewrite each function of tf_byteps that a program's own `tf.function` calls, which takes
seconds of a training's start, and nothing here needs it.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_byteps.exchange.compressor import Compressor
from tf_byteps.private.tensorflow import autograph_api, autograph_config, autograph_context

_PACKAGE = "tf_byteps"


def install() -> None:
    """Tells AutoGraph. Once per process."""
    rule = autograph_config.DoNotConvert(_PACKAGE)
    autograph_config.CONVERSION_RULES = (rule, *autograph_config.CONVERSION_RULES)


def as_called_by_program(function: Callable[..., Any]) -> Any:
    """A function of the program that tf_byteps calls for it: converted if its caller is.

    Args:
        function: what a program gave to tf_byteps.

    Returns:
        A function with the same arguments.
    """
    if str(getattr(function, "__module__", "")).partition(".")[0] == _PACKAGE:
        return function
    context = autograph_context.control_status_ctx()
    return autograph_api.tf_convert(function, context, convert_by_default=False)


def compress(
    compression: type[Compressor] | Compressor, tensor: tf.Tensor
) -> tuple[tf.Tensor, Any]:
    """`Compressor.compress`, which may be a program's own."""
    return as_called_by_program(compression.compress)(tensor)


def decompress(
    compression: type[Compressor] | Compressor, tensor: tf.Tensor, context: Any
) -> tf.Tensor:
    """`Compressor.decompress`, which may be a program's own."""
    return as_called_by_program(compression.decompress)(tensor, context)
