"""Training that goes on when workers die, come and go: docs/elastic.md.

Of Keras, TensorFlow and JAX, only what a name needs is imported when it is first used.
"""

import importlib
import typing
from typing import Any

from tf_byteps.elastic.running import run
from tf_byteps.elastic.states import HostsUpdatedInterrupt, ObjectState, State

if typing.TYPE_CHECKING:
    from tf_byteps.elastic.callbacks import (
        CommitStateCallback,
        UpdateBatchStateCallback,
        UpdateEpochStateCallback,
    )
    from tf_byteps.elastic.jax import JaxState
    from tf_byteps.elastic.keras_states import KerasState
    from tf_byteps.elastic.outer_states import OuterSyncState
    from tf_byteps.elastic.tensorflow import TensorFlowState

    TensorFlowKerasState = KerasState  # Horovod has both names

__all__ = [
    "CommitStateCallback",
    "HostsUpdatedInterrupt",
    "JaxState",
    "KerasState",
    "ObjectState",
    "OuterSyncState",
    "State",
    "TensorFlowKerasState",
    "TensorFlowState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]
_HOMES = {
    "CommitStateCallback": "callbacks",
    "JaxState": "jax",
    "KerasState": "keras_states",
    "OuterSyncState": "outer_states",
    "TensorFlowKerasState": "keras_states",
    "TensorFlowState": "tensorflow",
    "UpdateBatchStateCallback": "callbacks",
    "UpdateEpochStateCallback": "callbacks",
}
_OF_TENSORFLOW = ("OuterSyncState", "TensorFlowState")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tf_byteps.elastic' has no attribute {name!r}")
    if name in _OF_TENSORFLOW:
        from tf_byteps import _build_check

        _build_check.check_backend(f"elastic.{name}")
        _build_check.check_installed_tensorflow()
    module = importlib.import_module(f"tf_byteps.elastic.{_HOMES[name]}")
    return getattr(module, "KerasState" if name == "TensorFlowKerasState" else name)


def __dir__() -> list[str]:
    return sorted(__all__)
