# The names of `import tf_byteps`, and where each is defined: the one list, which type checkers and
# editors read, and from which `__init__.py` finds a name when it is first used.
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
from tf_byteps.config import Config as Config
from tf_byteps.errors import BytePSError as BytePSError
from tf_byteps.exchange.compression import Compression as Compression
from tf_byteps.exchange.joining import join as join
from tf_byteps.exchange.objects import (
    allgather_object as allgather_object,
    broadcast_object as broadcast_object,
)
from tf_byteps.exchange.process_sets import (
    ProcessSet as ProcessSet,
    add_process_set as add_process_set,
    global_process_set as global_process_set,
    init as init,
    remove_process_set as remove_process_set,
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
    SyncBatchNormalization as SyncBatchNormalization,
    broadcast_object_fn as broadcast_object_fn,
)
from tf_byteps.keras import (
    DistributedOptimizer as DistributedOptimizer,
    PartialDistributedOptimizer as PartialDistributedOptimizer,
)
from tf_byteps.local_steps.outer_sync import OuterSync as OuterSync
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
from tf_byteps.strategy import BytePSStrategy as BytePSStrategy
from tf_byteps.training.collectives import (
    allreduce as allreduce,
    broadcast_ as broadcast_,
    grouped_allgather as grouped_allgather,
    grouped_allreduce as grouped_allreduce,
)
from tf_byteps.training.runtime_ops import (
    local_rank_op as local_rank_op,
    local_size_op as local_size_op,
    process_set_included_op as process_set_included_op,
    rank_op as rank_op,
    size_op as size_op,
)
from tf_byteps.training.scattering import (
    grouped_reducescatter as grouped_reducescatter,
    reducescatter as reducescatter,
)
from tf_byteps.training.speed import get_pushpull_speed as get_pushpull_speed
from tf_byteps.training.suspension import resume as resume, suspend as suspend
from tf_byteps.training.tape import (
    DistributedGradientTape as DistributedGradientTape,
    PartialDistributedGradientTape as PartialDistributedGradientTape,
)
from tf_byteps.training.variables import (
    broadcast_global_variables as broadcast_global_variables,
    broadcast_variables as broadcast_variables,
)

__version__: str
