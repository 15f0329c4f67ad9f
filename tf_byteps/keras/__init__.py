"""tf_byteps for Keras without a strategy: `import tf_byteps.keras as bps`.

With `BytePSStrategy` nothing of this is needed: plain Keras objects are used there. Keras runs on
TensorFlow or on JAX (`KERAS_BACKEND`), and the other one is not imported.
"""

import typing

from tf_byteps import elastic
from tf_byteps.build_facts import (
    ccl_built,
    check_num_rank_power_of_2,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    gpu_available,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    num_rank_is_power_2,
    rocm_built,
)
from tf_byteps.exchange.compression import Compression
from tf_byteps.exchange.joining import join
from tf_byteps.exchange.objects import allgather_object, broadcast_object
from tf_byteps.exchange.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    init,
    remove_process_set,
)
from tf_byteps.exchange.reduce_op import Average, Max, Min, Product, Sum
from tf_byteps.exchange.unsupported import Adasum  # noqa: F401  (using one says what to use instead)
from tf_byteps.keras import callbacks
from tf_byteps.keras.optimizer import DistributedOptimizer
from tf_byteps.keras.partial import PartialDistributedOptimizer
from tf_byteps.keras.saving import load_model
from tf_byteps.keras.stand_ins import on_tensorflow
from tf_byteps.keras.values import (
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    broadcast_variables,
    push_pull,
    reducescatter,
)
from tf_byteps.runtime import (
    cross_rank,
    cross_size,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)

if typing.TYPE_CHECKING:
    from tf_byteps.keras import layers, optimizers
else:
    layers = on_tensorflow("layers", "tf_byteps.keras.layers")
    optimizers = on_tensorflow("optimizers", "tf_byteps.keras.optimizers")

__all__ = [
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Max",
    "Min",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "optimizers",
    "ccl_built",
    "check_num_rank_power_of_2",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "gpu_available",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "layers",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "num_rank_is_power_2",
    "push_pull",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
