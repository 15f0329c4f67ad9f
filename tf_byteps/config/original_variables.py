"""Variables of the original BytePS, ps-lite and Horovod that tf_byteps does not use, and why."""

_TRANSPORT = "BYTEPS_VAN chooses TCP or RDMA, and neither has settings of this kind"
_THREADS = "threads are set with BYTEPS_IO_THREADS"
_PLACEMENT = "parts are placed by size, deterministically, not by a hash"
_SCHEDULING = "scheduling is always on; BYTEPS_CREDIT_BYTES sets the bytes in flight"
_GPU = "reduction on one machine goes through servers"
_DEBUG = "BYTEPS_LOG_LEVEL=DEBUG prints what the engine does"
_TRACE = "use BYTEPS_TIMELINE, or tf_byteps.start_timeline() and stop_timeline()"
_LAUNCHER = "bpslaunch does not bind processes to cores"
_FUSION = "tensors are not fused, but cut into parts: see BYTEPS_PARTITION_BYTES"
_TUNING = "parts and credit tune themselves"
_HIERARCHY = "the GPUs of a host reduce among themselves first, always"
_STALL = "use BYTEPS_STALL_WARNING_SECONDS and BYTEPS_STALL_SHUTDOWN_SECONDS"
_SERVERS = "gradients go through servers, and within a host through NCCL"
_HEARTBEAT = "use BYTEPS_HEARTBEAT_INTERVAL and BYTEPS_HEARTBEAT_TIMEOUT"

IGNORED = {
    "BYTEPS_SOCKET_PATH": "there are no sockets in the file system",
    "BYTEPS_SCHEDULING_CREDIT": _SCHEDULING,
    "BYTEPS_SERVER_ENABLE_SCHEDULE": _SCHEDULING,
    "BYTEPS_NCCL_GROUP_SIZE": _GPU,
    "BYTEPS_NCCL_NUM_RINGS": _GPU,
    "BYTEPS_PCIE_SWITCH_SIZE": _GPU,
    "BYTEPS_REDUCE_ROOTS": _GPU,
    "BYTEPS_OMP_THREAD_PER_GPU": _THREADS,
    "BYTEPS_THREADPOOL_SIZE": _THREADS,
    "BYTEPS_SERVER_ENGINE_THREAD": _THREADS,
    "BYTEPS_SERVER_ENGINE_BLOCKING": _THREADS,
    "BYTEPS_KEY_HASH_FN": _PLACEMENT,
    "BYTEPS_BUILT_IN_HASH_COEF": _PLACEMENT,
    "BYTEPS_ENABLE_MIXED_MODE": "shares follow from where servers run; see BYTEPS_COLOCATED_SERVER",
    "BYTEPS_MIXED_MODE_BOUND": _PLACEMENT,
    "BYTEPS_LOG_HIDE_TIME": "every line of the log has its time",
    "BYTEPS_DEBUG_SAMPLE_TENSOR": _DEBUG,
    "BYTEPS_SERVER_DEBUG": _DEBUG,
    "BYTEPS_SERVER_DEBUG_KEY": _DEBUG,
    "BYTEPS_TRACE_ON": _TRACE,
    "BYTEPS_TRACE_START_STEP": _TRACE,
    "BYTEPS_TRACE_END_STEP": _TRACE,
    "BYTEPS_TRACE_DIR": _TRACE,
    "BYTEPS_TELEMETRY_ON": "counters are always on",
    "BYTEPS_ENABLE_GDB": "start the command under a debugger instead",
    "BYTEPS_NUMA_ON": _LAUNCHER,
    "BYTEPS_NUMA_DEFAULT_QUOTA": _LAUNCHER,
    "BYTEPS_NUMA_ROOT_QUOTA": _LAUNCHER,
    "BYTEPS_CPU_BLACKLIST": _LAUNCHER,
    "BYTEPS_VISIBLE_CPU_CORES": _LAUNCHER,
    "BYTEPS_MULTITHREADED_CPU": _LAUNCHER,
    "BYTEPS_IPC_COPY_NUM_THREADS": _TRANSPORT,
    "BYTEPS_IPC_ENABLE_ASYNC_COPY": _TRANSPORT,
    "BYTEPS_RDMA_START_DEPTH": _TRANSPORT,
    "BYTEPS_RDMA_RX_DEPTH": _TRANSPORT,
    "BYTEPS_RDMA_MAX_CONCURR_WR": _TRANSPORT,
    "BYTEPS_ADDRESS_POOL_SIZE": _TRANSPORT,
    "BYTEPS_PRINT_RDMA_LOG": _TRANSPORT,
    "BYTEPS_ZMQ_MAX_SOCKET": _TRANSPORT,
    "BYTEPS_ZMQ_NTHREADS": _TRANSPORT,
    "BYTEPS_ORDERED_HOSTS": "DMLC_WORKER_ID orders the machines",
    "DMLC_ENABLE_UCX": _TRANSPORT,
    "DMLC_PS_VAN_TYPE": _TRANSPORT,
    "DMLC_PORT": "use BYTEPS_SERVER_PORT",
    "DMLC_NUM_PORTS": _TRANSPORT,
    "DMLC_GROUP_SIZE": _TRANSPORT,
    "DMLC_LOCAL": _TRANSPORT,
    "DMLC_USE_KUBERNETES": "a name that is not a local address is served on all interfaces",
    "DMLC_RANK": "use BYTEPS_GLOBAL_RANK or BYTEPS_SERVER_ID",
    "PS_VERBOSE": _DEBUG,
    "PS_KEY_LOG": _DEBUG,
    "PS_RESEND": _TRANSPORT,
    "PS_RESEND_TIMEOUT": _TRANSPORT,
    "PS_DROP_MSG": _TRANSPORT,
    "PS_HEARTBEAT_INTERVAL": _HEARTBEAT,
    "PS_HEARTBEAT_TIMEOUT": _HEARTBEAT,
    "BYTEPS_USE_HASH_KEY": _PLACEMENT,
    "HOROVOD_TIMELINE": _TRACE,
    "HOROVOD_TIMELINE_MARK_CYCLES": _TRACE,
    "HOROVOD_FUSION_THRESHOLD": _FUSION,
    "HOROVOD_CYCLE_TIME": _FUSION,
    "HOROVOD_CACHE_CAPACITY": _FUSION,
    "HOROVOD_DISABLE_GROUP_FUSION": _FUSION,
    "HOROVOD_BATCH_D2D_MEMCOPIES": _FUSION,
    "HOROVOD_AUTOTUNE": _TUNING,
    "HOROVOD_AUTOTUNE_LOG": _TUNING,
    "HOROVOD_HIERARCHICAL_ALLREDUCE": _HIERARCHY,
    "HOROVOD_HIERARCHICAL_ALLGATHER": _HIERARCHY,
    "HOROVOD_NUM_NCCL_STREAMS": _HIERARCHY,
    "HOROVOD_STALL_CHECK_DISABLE": _STALL,
    "HOROVOD_STALL_CHECK_TIME_SECONDS": _STALL,
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": _STALL,
    "HOROVOD_LOG_LEVEL": "use BYTEPS_LOG_LEVEL",
    "HOROVOD_ELASTIC_TIMEOUT": "use BYTEPS_ELASTIC_TIMEOUT, or bpslaunch --elastic-timeout",
    "HOROVOD_GLOO_IFACE": "use DMLC_INTERFACE, or bpslaunch --network-interface",
    "HOROVOD_GLOO_TIMEOUT_SECONDS": "use BYTEPS_RENDEZVOUS_TIMEOUT and BYTEPS_OPERATION_TIMEOUT",
    "HOROVOD_START_TIMEOUT": "use BYTEPS_RENDEZVOUS_TIMEOUT",
    "HOROVOD_CPU_OPERATIONS": _SERVERS,
    "HOROVOD_GPU_OPERATIONS": _SERVERS,
    "HOROVOD_CONTROLLER": _SERVERS,
    "HOROVOD_MPI_THREADS_DISABLE": _SERVERS,
    "HOROVOD_THREAD_AFFINITY": _LAUNCHER,
    "HOROVOD_ENABLE_XLA_OPS": "exchanges are part of steps that XLA compiles, always",
}

# Set to anything but no, they ask for other results.
REFUSED = {
    "BYTEPS_ENABLE_ASYNC": "a program says itself that it trains asynchronously, since its "
    "results are others: unset it, and pass push_pull(..., enable_async=True) "
    "(docs/asynchronous.md)",
}
