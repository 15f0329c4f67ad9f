"""tf_byteps for Keras without a strategy: `import tf_byteps.keras as bps`.

With `BytePSStrategy` nothing of this is needed: plain Keras objects are used there.
"""

from tf_byteps import elastic
from tf_byteps.keras import callbacks
from tf_byteps.keras.optimizer import DistributedOptimizer
from tf_byteps.keras.saving import load_model
from tf_byteps.keras.values import (
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    push_pull,
)
from tf_byteps.ops import Average, Compression, Max, Min, Sum
from tf_byteps.runtime import (
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from tf_byteps.training.objects import allgather_object, broadcast_object
from tf_byteps.training.variables import broadcast_variables

__all__ = [
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Max",
    "Min",
    "Sum",
    "allgather",
    "allgather_object",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "elastic",
    "init",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "push_pull",
    "rank",
    "shutdown",
    "size",
]
