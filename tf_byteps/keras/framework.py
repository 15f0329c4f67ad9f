"""The framework that Keras runs on. No other one is imported."""

import functools

import keras

from tf_byteps._build_check import check_installed_tensorflow
from tf_byteps.keras.interface import Framework


@functools.cache
def current() -> Framework:
    """The framework of this process.

    Raises:
        ImportError: `tf_byteps.keras` does not work with it, or with its version.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        check_installed_tensorflow()
        from tf_byteps.keras.tensorflow.framework import TensorFlow

        return TensorFlow()
    if backend == "jax":
        from tf_byteps.keras.jax.framework import Jax

        return Jax()
    raise ImportError(
        f"tf_byteps.keras is for Keras on TensorFlow or JAX, and KERAS_BACKEND is {backend!r}: set "
        'it to "tensorflow" or "jax" before keras is imported'
    )
