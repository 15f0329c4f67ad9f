"""Names of other libraries that tf_byteps leaves out on purpose, and what to use instead."""

from typing import Any, NoReturn

_TF1 = "it belongs to TensorFlow 1 sessions; use broadcast_variables, or the Keras callback"

INSTEAD = {
    "SyncBatchNormalization": (
        "use BytePSStrategy with keras.layers.BatchNormalization(synchronized=True)"
    ),
    "BroadcastGlobalVariablesHook": _TF1,
    "broadcast_object_fn": "use broadcast_object",
}

# What Horovod names as an operation of an exchange; `push_pull` refuses it.
Adasum = "adasum"


class Unsupported:
    """Stands for a name that tf_byteps has not: can be imported, but neither called nor used."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.__doc__ = f"Not in tf_byteps: {INSTEAD[name]}."

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"tf_byteps has no {self.__name__}: {INSTEAD[self.__name__]}")

    def __getattr__(self, attribute: str) -> NoReturn:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        self.__call__()

    def __repr__(self) -> str:
        return f"<{self.__name__}: not in tf_byteps>"


broadcast_object_fn = Unsupported("broadcast_object_fn")
BroadcastGlobalVariablesHook = Unsupported("BroadcastGlobalVariablesHook")
SyncBatchNormalization = Unsupported("SyncBatchNormalization")
