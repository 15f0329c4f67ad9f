"""Training that goes on when workers die, come and go: docs/elastic.md."""

from tf_byteps.elastic.callbacks import (
    CommitStateCallback,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
)
from tf_byteps.elastic.outer_states import OuterSyncState
from tf_byteps.elastic.running import run
from tf_byteps.elastic.states import (
    HostsUpdatedInterrupt,
    KerasState,
    ObjectState,
    State,
    TensorFlowState,
)

TensorFlowKerasState = KerasState  # Horovod has both names

__all__ = [
    "CommitStateCallback",
    "HostsUpdatedInterrupt",
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
