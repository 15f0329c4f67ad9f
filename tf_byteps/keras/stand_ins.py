"""Names of `tf_byteps.keras` that are for Keras on TensorFlow only.

With another framework they can be imported, and using one says so.
"""

import importlib
from typing import Any, NoReturn

import keras

from tf_byteps.keras.framework import current

_INSTEAD = {
    "layers": "use keras.layers.Embedding, a whole copy of which each worker holds",
    "optimizers": "use Keras's own: gradients of embeddings are dense there",
    "callbacks.OuterSyncCallback": "Keras on JAX exchanges gradients in each step",
}


class OnTensorFlow:
    """Stands for a name that Keras on TensorFlow has: can be imported, but not used."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.__doc__ = f"Not with KERAS_BACKEND={keras.backend.backend()}."

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(
            f"tf_byteps.keras.{self.__name__} does not work with "
            f"KERAS_BACKEND={keras.backend.backend()}: {_INSTEAD[self.__name__]}"
        )

    def __getattr__(self, attribute: str) -> NoReturn:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        self.__call__()


def on_tensorflow(name: str, module: str) -> Any:
    """A module, or one of its classes; with another framework what stands for it.

    Args:
        name: below `tf_byteps.keras`.
        module: that it is, or is defined in.

    Raises:
        ImportError: see `current`.
    """
    current()
    if keras.backend.backend() != "tensorflow":
        return OnTensorFlow(name)
    found = importlib.import_module(module)
    return getattr(found, name.rpartition(".")[2]) if "." in name else found
