"""`BytePSStrategy`: data-parallel training with Keras, on TensorFlow or on JAX.

Keras says what it runs on (`KERAS_BACKEND`), and that decides which class the name is of: with
TensorFlow a `tf.distribute.Strategy`, with JAX one that needs no TensorFlow.
"""

import typing
from typing import Any

if typing.TYPE_CHECKING:
    from tf_byteps.strategy.strategy import BytePSStrategy

__all__ = ["BytePSStrategy"]


def __getattr__(name: str) -> Any:
    if name != "BytePSStrategy":
        raise AttributeError(f"module 'tf_byteps.strategy' has no attribute {name!r}")
    return _of_backend()


def _of_backend() -> Any:
    import keras

    from tf_byteps.errors import BytePSError

    backend = keras.backend.backend()
    if backend == "tensorflow":
        from tf_byteps._build_check import check_installed_tensorflow

        check_installed_tensorflow()
        from tf_byteps.strategy import strategy as of_tensorflow

        return of_tensorflow.BytePSStrategy
    if backend == "jax":
        from tf_byteps.strategy.jax import strategy as of_jax

        return of_jax.BytePSStrategy
    raise BytePSError(
        f"BytePSStrategy is for Keras on TensorFlow or JAX, and KERAS_BACKEND is {backend!r}: set "
        'it to "tensorflow" or "jax" before keras is imported'
    )
