"""Names of other libraries that tf_byteps leaves out on purpose, and what to use instead."""

from typing import Any, NoReturn

_WHOLE_JOB = "an exchange is always between all workers of the job"
_TF1 = "it belongs to TensorFlow 1 sessions; use broadcast_variables, or the Keras callback"

INSTEAD = {
    "join": "use BytePSStrategy, which trains on the rest of the data when a worker has none left",
    "ProcessSet": _WHOLE_JOB,
    "global_process_set": _WHOLE_JOB,
    "add_process_set": _WHOLE_JOB,
    "remove_process_set": _WHOLE_JOB,
    "process_set_included_op": _WHOLE_JOB,
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


def refuse_process_set(process_set: object) -> None:
    """Raises NotImplementedError if a process set is given."""
    if process_set is not None:
        raise NotImplementedError(f"process sets are not supported: {_WHOLE_JOB}")


add_process_set = Unsupported("add_process_set")
broadcast_object_fn = Unsupported("broadcast_object_fn")
BroadcastGlobalVariablesHook = Unsupported("BroadcastGlobalVariablesHook")
global_process_set = Unsupported("global_process_set")
join = Unsupported("join")
process_set_included_op = Unsupported("process_set_included_op")
ProcessSet = Unsupported("ProcessSet")
remove_process_set = Unsupported("remove_process_set")
SyncBatchNormalization = Unsupported("SyncBatchNormalization")
