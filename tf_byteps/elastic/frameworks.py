"""The frameworks that this process uses. None is imported here that it does not use already."""

import importlib
import sys
from typing import cast

from tf_byteps.elastic.interface import Framework, VariableFramework

# The package that exchanges a framework's arrays -> the module here, and its class.
_CLASSES = {
    "tf_byteps.ops": ("tf_byteps.elastic.tensorflow", "TensorFlow"),
    "tf_byteps.jax": ("tf_byteps.elastic.jax", "Jax"),
}


def in_use() -> list[Framework]:
    """Those whose arrays this process may exchange."""
    return [_make(home) for package, home in _CLASSES.items() if package in sys.modules]


def of_keras() -> VariableFramework:
    """The framework that Keras runs on.

    Raises:
        ImportError: there are no elastic jobs with it, or with its version.
    """
    import keras

    backend = keras.backend.backend()
    if backend == "tensorflow":
        from tf_byteps._build_check import check_installed_tensorflow

        check_installed_tensorflow()
    elif backend != "jax":
        raise ImportError(
            f"elastic jobs of Keras are for TensorFlow or JAX, and KERAS_BACKEND is {backend!r}: "
            'set it to "tensorflow" or "jax" before keras is imported'
        )
    package = "tf_byteps.ops" if backend == "tensorflow" else "tf_byteps.jax"
    return cast(VariableFramework, _make(_CLASSES[package]))


def _make(home: tuple[str, str]) -> Framework:
    module, name = home
    return getattr(importlib.import_module(module), name)()
