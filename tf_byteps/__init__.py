"""BytePS for TensorFlow 2 and Keras 3: data-parallel training through summation servers.

`import tf_byteps` does not import TensorFlow; a name that needs it does, when it is first used.
"""

import importlib
import typing
from typing import Any

__version__ = "0.2.0"

_RUNTIME = (
    "init",
    "shutdown",
    "is_initialized",
    "rank",
    "size",
    "local_rank",
    "local_size",
    "cross_rank",
    "cross_size",
    "is_homogeneous",
    "server_counters",
    "arrival_lags",
    "lost_process",
    "start_timeline",
    "stop_timeline",
)
_BUILD_FACTS = (
    "ccl_built",
    "check_num_rank_power_of_2",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "gpu_available",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "num_rank_is_power_2",
    "rocm_built",
)
_OPS = (
    "push_pull",
    "broadcast",
    "gather",
    "allgather",
)
_EXCHANGE = {
    "compression": ("Compression",),
    "objects": ("allgather_object", "broadcast_object"),
    "reduce_op": ("Average", "Max", "Min", "Product", "ReduceOp", "Sum"),
}
_TRAINING = {
    "collectives": ("allreduce", "broadcast_", "grouped_allgather", "grouped_allreduce"),
    "runtime_ops": ("local_rank_op", "local_size_op", "rank_op", "size_op"),
    "scattering": ("grouped_reducescatter", "reducescatter"),
    "speed": ("get_pushpull_speed",),
    "suspension": ("resume", "suspend"),
    "tape": ("DistributedGradientTape",),
    "variables": ("broadcast_global_variables", "broadcast_variables"),
}
# Of other libraries: using one says what to use instead.
_UNSUPPORTED = (
    "Adasum",
    "BroadcastGlobalVariablesHook",
    "PartialDistributedGradientTape",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "SyncBatchNormalization",
    "add_process_set",
    "broadcast_object_fn",
    "global_process_set",
    "join",
    "process_set_included_op",
    "remove_process_set",
)

# Where each public name is defined.
_HOME = {
    **dict.fromkeys(_RUNTIME, "tf_byteps.runtime"),
    **dict.fromkeys(_BUILD_FACTS, "tf_byteps.build_facts"),
    **dict.fromkeys(_OPS, "tf_byteps.dispatch"),
    **{name: f"tf_byteps.exchange.{module}" for module in _EXCHANGE for name in _EXCHANGE[module]},
    **{name: f"tf_byteps.training.{module}" for module in _TRAINING for name in _TRAINING[module]},
    **dict.fromkeys(_UNSUPPORTED, "tf_byteps.exchange.unsupported"),
    "alltoall": "tf_byteps.ops",
    "DistributedOptimizer": "tf_byteps.keras",
    "Config": "tf_byteps.config",
    "BytePSError": "tf_byteps.errors",
    "BytePSStrategy": "tf_byteps.strategy",
    "OuterSync": "tf_byteps.local_steps.outer_sync",
}
_MODULES = (
    "config",
    "elastic",
    "errors",
    "jax",
    "keras",
    "launch",
    "local_steps",
    "ops",
    "runtime",
    "strategy",
    "timeline",
    "training",
)
_WITH_TENSORFLOW = ("elastic", "keras", "local_steps", "ops", "training")

# What type checkers and editors see of the names that `__getattr__` finds.
if typing.TYPE_CHECKING:
    from tf_byteps import (
        config as config,
        elastic as elastic,
        errors as errors,
        jax as jax,
        keras as keras,
        launch as launch,
        local_steps as local_steps,
        ops as ops,
        runtime as runtime,
        strategy as strategy,
        timeline as timeline,
        training as training,
    )
    from tf_byteps.build_facts import (
        ccl_built as ccl_built,
        check_num_rank_power_of_2 as check_num_rank_power_of_2,
        cuda_built as cuda_built,
        ddl_built as ddl_built,
        gloo_built as gloo_built,
        gloo_enabled as gloo_enabled,
        gpu_available as gpu_available,
        mpi_built as mpi_built,
        mpi_enabled as mpi_enabled,
        mpi_threads_supported as mpi_threads_supported,
        nccl_built as nccl_built,
        num_rank_is_power_2 as num_rank_is_power_2,
        rocm_built as rocm_built,
    )
    from tf_byteps.config import (
        Config as Config,
    )
    from tf_byteps.errors import (
        BytePSError as BytePSError,
    )
    from tf_byteps.exchange.compression import (
        Compression as Compression,
    )
    from tf_byteps.exchange.objects import (
        allgather_object as allgather_object,
        broadcast_object as broadcast_object,
    )
    from tf_byteps.exchange.reduce_op import (
        Average as Average,
        Max as Max,
        Min as Min,
        Product as Product,
        ReduceOp as ReduceOp,
        Sum as Sum,
    )
    from tf_byteps.exchange.unsupported import (
        Adasum as Adasum,
        BroadcastGlobalVariablesHook as BroadcastGlobalVariablesHook,
        PartialDistributedGradientTape as PartialDistributedGradientTape,
        PartialDistributedOptimizer as PartialDistributedOptimizer,
        ProcessSet as ProcessSet,
        SyncBatchNormalization as SyncBatchNormalization,
        add_process_set as add_process_set,
        broadcast_object_fn as broadcast_object_fn,
        global_process_set as global_process_set,
        join as join,
        process_set_included_op as process_set_included_op,
        remove_process_set as remove_process_set,
    )
    from tf_byteps.keras import (
        DistributedOptimizer as DistributedOptimizer,
    )
    from tf_byteps.local_steps.outer_sync import (
        OuterSync as OuterSync,
    )
    from tf_byteps.ops import (
        allgather as allgather,
        alltoall as alltoall,
        broadcast as broadcast,
        gather as gather,
        push_pull as push_pull,
    )
    from tf_byteps.runtime import (
        arrival_lags as arrival_lags,
        cross_rank as cross_rank,
        cross_size as cross_size,
        init as init,
        is_homogeneous as is_homogeneous,
        is_initialized as is_initialized,
        local_rank as local_rank,
        local_size as local_size,
        lost_process as lost_process,
        rank as rank,
        server_counters as server_counters,
        shutdown as shutdown,
        size as size,
        start_timeline as start_timeline,
        stop_timeline as stop_timeline,
    )
    from tf_byteps.strategy import (
        BytePSStrategy as BytePSStrategy,
    )
    from tf_byteps.training.collectives import (
        allreduce as allreduce,
        broadcast_ as broadcast_,
        grouped_allgather as grouped_allgather,
        grouped_allreduce as grouped_allreduce,
    )
    from tf_byteps.training.runtime_ops import (
        local_rank_op as local_rank_op,
        local_size_op as local_size_op,
        rank_op as rank_op,
        size_op as size_op,
    )
    from tf_byteps.training.scattering import (
        grouped_reducescatter as grouped_reducescatter,
        reducescatter as reducescatter,
    )
    from tf_byteps.training.speed import (
        get_pushpull_speed as get_pushpull_speed,
    )
    from tf_byteps.training.suspension import (
        resume as resume,
        suspend as suspend,
    )
    from tf_byteps.training.tape import (
        DistributedGradientTape as DistributedGradientTape,
    )
    from tf_byteps.training.variables import (
        broadcast_global_variables as broadcast_global_variables,
        broadcast_variables as broadcast_variables,
    )
else:
    __all__ = ["__version__", *(name for name in _HOME if name not in _UNSUPPORTED)]

    def __getattr__(name: Any) -> Any:
        home = _HOME.get(name) or (f"tf_byteps.{name}" if name in _MODULES else None)
        if home is None:
            raise AttributeError(f"module 'tf_byteps' has no attribute {name!r}")
        if home.split(".")[1] in _WITH_TENSORFLOW:
            _check_tensorflow(name)
        module = importlib.import_module(home)
        return module if name in _MODULES else getattr(module, name)

    def __dir__() -> list[Any]:
        return sorted({"__version__", *_HOME, *_MODULES})


def _check_tensorflow(name: str) -> None:
    from tf_byteps import _build_check

    _build_check.check_backend(name)
    _build_check.check_installed_tensorflow()
