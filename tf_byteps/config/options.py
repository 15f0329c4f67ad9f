"""The table of all settings: one field each, with its variable, its values and its meaning."""

from __future__ import annotations

import dataclasses

from tf_byteps import _engine
from tf_byteps.config.declaring import choice, flag, option, port_range, seconds, text, whole
from tf_byteps.environments.place import MAX_PORT

# What the engine has as well has its default in cc/base/job.h, and only there.
_ENGINE = _engine.EngineOptions()


@dataclasses.dataclass(frozen=True)
class Options:
    """The fields of `tf_byteps.Config`, in the order in which they are printed."""

    role: str = option(
        "worker",
        "DMLC_ROLE",
        choice("worker", "server", "scheduler", "evaluator"),
        "What this process is. An evaluator is the only worker of a job of its own.",
    )
    scheduler_host: str | None = option(
        None, "DMLC_PS_ROOT_URI", text(), "Name or address at which the scheduler is reached."
    )
    scheduler_port: int | None = option(
        None,
        "DMLC_PS_ROOT_PORT",
        whole(0, MAX_PORT),
        "The scheduler's port. 0, for the scheduler only: any free one.",
    )
    num_worker_machines: int = option(
        1, "DMLC_NUM_WORKER", whole(1), "Number of machines that run workers."
    )
    worker_id: int | None = option(
        None,
        "DMLC_WORKER_ID",
        whole(0),
        "This worker machine's number, from 0.",
        default_text="the scheduler assigns the rank",
    )
    num_servers: int = option(
        0, "DMLC_NUM_SERVER", whole(0), "Number of server processes, without colocated servers."
    )
    server_id: int | None = option(
        None,
        "BYTEPS_SERVER_ID",
        whole(0),
        "This server's rank among the server processes.",
        default_text="ordered by address",
        listed=False,
    )
    local_rank: int = option(
        0, "BYTEPS_LOCAL_RANK", whole(0), "This worker's number on its machine, from 0."
    )
    local_size: int = option(
        1, "BYTEPS_LOCAL_SIZE", whole(1), "Number of workers on this machine (one for each GPU)."
    )
    global_rank: int | None = option(
        None,
        "BYTEPS_GLOBAL_RANK",
        whole(0),
        "This worker's rank in the job; for machines with different numbers of workers.",
        default_text="DMLC_WORKER_ID x BYTEPS_LOCAL_SIZE + BYTEPS_LOCAL_RANK",
        listed=False,
    )
    global_size: int | None = option(
        None,
        "BYTEPS_GLOBAL_SIZE",
        whole(1),
        "Number of workers in the job.",
        default_text="DMLC_NUM_WORKER x BYTEPS_LOCAL_SIZE",
        listed=False,
    )
    colocated_server: bool | None = option(
        None,
        "BYTEPS_COLOCATED_SERVER",
        flag(),
        "Whether this worker's process also runs a server.",
        default_text="yes, unless there are server processes",
    )
    colocated_scheduler: bool | None = option(
        None,
        "BYTEPS_COLOCATED_SCHEDULER",
        flag(),
        "Whether this worker's process also runs the scheduler.",
        default_text="no; with TF_CONFIG: yes in the first worker",
        listed=False,
    )
    force_distributed: bool = option(
        False,
        "BYTEPS_FORCE_DISTRIBUTED",
        flag(),
        "Go through a server even with one worker.",
        listed=False,
    )
    node_host: str | None = option(
        None,
        "DMLC_NODE_HOST",
        text(),
        "Address of this machine at which the others reach it.",
        default_text="the address that routes to the scheduler",
    )
    interface: str | None = option(
        None, "DMLC_INTERFACE", text(), "Network interface whose address is used, such as eth0."
    )
    server_port: int = option(
        0, "BYTEPS_SERVER_PORT", whole(0, MAX_PORT), "Port of this process's server. 0: any free."
    )
    ports: str | None = option(
        None,
        "BYTEPS_PORTS",
        port_range(),
        "Where no other setting names a port, a process listens at the first free one of these, "
        "such as 20000-20063. bpslaunch --ports.",
        default_text="any free ones",
    )
    host_id: str | None = option(
        None,
        "BYTEPS_HOST_ID",
        text(200),
        "Processes with the same text count as being on one machine.",
        default_text="boot id and network namespace",
        listed=False,
    )
    one_machine: bool = option(
        False,
        "BYTEPS_ONE_MACHINE",
        flag(),
        "All processes of the job are on this machine: where its name stands for a loopback "
        "address, they meet there.",
        default_text="yes if the launcher says so, as TF_CONFIG with one host does",
        listed=False,
    )
    job_id: str | None = option(
        None,
        "BYTEPS_JOB_ID",
        text(64),
        "Tells jobs apart: processes with another text are refused.",
        default_text="drawn by the scheduler",
        listed=False,
    )
    job_secret: str | None = option(
        None,
        "BYTEPS_JOB_SECRET",
        text(minimum=16),
        "What all processes of the job know and nobody else: others are refused (see "
        "[security](security.md)).",
        default_text="none; bpslaunch makes one",
        hidden=True,
    )
    job_secret_file: str | None = option(
        None,
        "BYTEPS_JOB_SECRET_FILE",
        text(),
        "A file with the secret, instead of BYTEPS_JOB_SECRET.",
    )
    allow_open: bool = option(
        False,
        "BYTEPS_ALLOW_OPEN",
        flag(),
        "Allows a job without a secret to listen at addresses that other machines can reach. "
        "Anyone there can then join the job, read its weights or end it.",
    )
    tls: bool = option(
        _ENGINE.security.tls,
        "BYTEPS_TLS",
        flag(),
        "All that processes of the job send to each other is encrypted, with TLS 1.3 and keys that "
        "follow from the job's secret (see [security](security.md)). bpslaunch --tls.",
        shared=True,
    )
    part_bytes: int | None = option(
        None,
        "BYTEPS_PARTITION_BYTES",
        whole(8, unit="bytes"),
        "Longest part into which a tensor is cut.",
        default_text="chosen, 64 KB to 4 MB",
        shared=True,
    )
    credit_bytes: int | None = option(
        None,
        "BYTEPS_CREDIT_BYTES",
        whole(1, unit="bytes"),
        "How many bytes a worker may have in flight, to all servers together.",
        default_text="chosen, 256 KB to 16 MB",
        shared=True,
    )
    link_bytes_per_second: int | None = option(
        None,
        "BYTEPS_LINK_BYTES_PER_SECOND",
        whole(1, unit="bytes"),
        "What the slowest worker's link carries.",
        default_text="measured in the first steps",
        shared=True,
    )
    connections_per_server: int | None = option(
        None,
        "BYTEPS_CONNECTIONS_PER_SERVER",
        whole(1, 64),
        "Connections from a worker to each server; one TCP stream may not fill a fast network.",
        default_text="4 in all, 1 in large jobs",
        shared=True,
    )
    io_threads: int | None = option(
        None,
        "BYTEPS_IO_THREADS",
        whole(1, 64),
        "Threads that move bytes, in a worker or a server.",
        default_text="1 to 4, by processors",
    )
    read_peer_memory: bool = option(
        _ENGINE.network.read_peer_memory,
        "BYTEPS_ENABLE_IPC",
        flag(),
        "Processes of one machine read each other's memory instead of sending tensors through a "
        "socket, where the system allows it and the job has a secret.",
    )
    min_compress_bytes: int = option(
        _ENGINE.compression.min_compress_bytes,
        "BYTEPS_MIN_COMPRESS_BYTES",
        whole(0, unit="bytes"),
        "Shorter tensors are sent as they are where a codec is asked for that is not a cast. "
        "See [compression](compression.md).",
        shared=True,
    )
    narrow: bool = option(
        True,
        "BYTEPS_NARROW",
        flag(),
        "Whether float32 gradients that fit in 16 bits without loss, as in mixed precision, are "
        "sent to servers of other hosts in 16 bits. It changes no result. Not over RDMA, nor over "
        "links that are not known to carry at most 5 Gbit/s. "
        "See [compression](compression.md).",
        listed=False,
    )
    row_sum_workers: int = option(
        0,
        "BYTEPS_ROW_SUM_WORKERS",
        whole(0),
        "With at least so many workers servers add up the rows of tf.IndexedSlices, instead of "
        "sending all workers' rows to each worker; 0: never. In an elastic job, whose number of "
        "workers changes, only 0 and 1 (always) choose. "
        "See [embeddings](compression.md#add-rows-up-on-servers).",
        shared=True,
        listed=False,
    )
    van: str = option(
        "tcp",
        "BYTEPS_VAN",
        choice("tcp", "rdma", "auto"),
        "How tensors travel between machines: by RDMA or not at all (rdma), or by RDMA where both "
        "ends have it (auto). DMLC_ENABLE_RDMA=1 means rdma. See [RDMA](rdma.md).",
    )
    rdma_devices: str | None = option(
        None,
        "BYTEPS_RDMA_DEVICES",
        text(),
        "RDMA devices, such as mlx5_0 or mlx5_0:1 (its first port); connections take turns between "
        "several, with commas.",
        default_text="the one with this process's address",
    )
    rdma_gid_index: int | None = option(
        None,
        "BYTEPS_RDMA_GID_INDEX",
        whole(0, 255),
        "Entry of the device's table of GIDs.",
        default_text="RoCE v2 with the device's IPv4 address, if there is one",
        listed=False,
    )
    rdma_traffic_class: int = option(
        _ENGINE.network.rdma.traffic_class,
        "BYTEPS_RDMA_TRAFFIC_CLASS",
        whole(0, 255),
        "Traffic class of RDMA packets (DSCP x 4).",
        listed=False,
    )
    rdma_service_level: int = option(
        _ENGINE.network.rdma.service_level,
        "BYTEPS_RDMA_SERVICE_LEVEL",
        whole(0, 15),
        "Service level of RDMA packets.",
        listed=False,
    )
    rdma_spin_microseconds: int | None = option(
        None,
        "BYTEPS_RDMA_SPIN_MICROSECONDS",
        whole(0, 10_000, unit="microseconds"),
        "How long a thread goes on polling after RDMA traffic before it sleeps; 0: not at all.",
        default_text="20, or 0 where there are fewer than 4 processors",
        listed=False,
    )
    deterministic: bool = option(
        _ENGINE.deterministic,
        "BYTEPS_DETERMINISTIC",
        flag(),
        "Servers add the workers' tensors in rank order, so that a sum does not depend on who is "
        "first. See [determinism](determinism.md).",
        default_text="what enable_op_determinism() says",
        shared=True,
    )
    backup_workers: int = option(
        0,
        "BYTEPS_BACKUP_WORKERS",
        whole(0),
        "Averages of gradients do not wait for so many of the workers. Not in deterministic jobs. "
        "See [stragglers](stragglers.md).",
        shared=True,
    )
    max_lag: int = option(
        _ENGINE.max_lag,
        "BYTEPS_MAX_LAG",
        whole(1, 1000),
        "Rounds of a gradient that a worker may be behind the others with BYTEPS_BACKUP_WORKERS; "
        "then they wait. Servers keep so many results.",
        shared=True,
    )
    enable_async: bool = option(
        False,
        "BYTEPS_ENABLE_ASYNC",
        flag(),
        "DistributedOptimizer trains asynchronously: workers exchange changes of weights, and wait "
        "for nobody. The same on all workers. See [asynchronous training](asynchronous.md).",
    )
    check_weights: str = option(
        "warning",
        "BYTEPS_CHECK_WEIGHTS",
        choice("warning", "error", "off"),
        "What happens if the workers' weights, optimizers or learning rates differ at the end of "
        "an epoch of BytePSStrategy, or before the first step of a DistributedOptimizer. Worker "
        "0's setting counts. off saves reading them all.",
    )
    connect_timeout: float = option(
        _ENGINE.timeouts.connect_timeout,
        "BYTEPS_CONNECT_TIMEOUT",
        seconds(),
        "How long a process tries to reach another one.",
        shared=True,
    )
    rendezvous_timeout: float = option(
        600.0,
        "BYTEPS_RENDEZVOUS_TIMEOUT",
        seconds(),
        "How long processes wait until all of the job are there, and for the scheduler's first "
        "answer: the machine of rank 0 may start last.",
    )
    operation_timeout: float = option(
        _ENGINE.timeouts.operation_timeout,
        "BYTEPS_OPERATION_TIMEOUT",
        seconds(zero_means="no limit"),
        "How long the exchange of a tensor may take.",
        shared=True,
    )
    stall_warning: float = option(
        _ENGINE.timeouts.stall_warning,
        "BYTEPS_STALL_WARNING_SECONDS",
        seconds(zero_means="never"),
        "A tensor that waits longer for other workers is reported in the log: who has sent it, who "
        "has not, and what those are doing.",
        shared=True,
    )
    stall_shutdown: float = option(
        _ENGINE.timeouts.stall_shutdown,
        "BYTEPS_STALL_SHUTDOWN_SECONDS",
        seconds(zero_means="never"),
        "A tensor that waits longer for other workers ends the job with an error.",
        default_text="0 (never)",
        shared=True,
    )
    heartbeat_interval: float = option(
        _ENGINE.timeouts.heartbeat_interval,
        "BYTEPS_HEARTBEAT_INTERVAL",
        seconds(),
        "How often processes show that they are alive.",
        shared=True,
        listed=False,
    )
    heartbeat_timeout: float = option(
        _ENGINE.timeouts.heartbeat_timeout,
        "BYTEPS_HEARTBEAT_TIMEOUT",
        seconds(),
        "A process that is silent for so long counts as lost.",
        shared=True,
    )
    shutdown_timeout: float = option(
        _ENGINE.timeouts.shutdown_timeout,
        "BYTEPS_SHUTDOWN_TIMEOUT",
        seconds(),
        "How long a process that hosts a server or the scheduler waits for the others to end.",
        shared=True,
    )
    server_failover: bool = option(
        _ENGINE.server_failover,
        "BYTEPS_SERVER_FAILOVER",
        flag(),
        "When a server is lost, training goes on with the others, if there are any. Workers keep "
        "the last result of each tensor for that. See [reliability](reliability.md).",
        shared=True,
    )
    restart_timeout: float = option(
        30.0,
        "BYTEPS_RESTART_TIMEOUT",
        seconds(zero_means="they end at once"),
        "How long server and scheduler processes wait, after somebody was lost, for the job's "
        "processes to come together again; then they end with exit code 1.",
    )
    min_workers: int | None = option(
        None,
        "BYTEPS_MIN_WORKERS",
        whole(1),
        "Makes the job elastic (see [elastic](elastic.md)): it goes on, with other ranks, as long "
        "as there are so many workers. bpslaunch --min-np.",
        default_text="the number of workers is fixed",
        listed=False,
    )
    max_workers: int | None = option(
        None,
        "BYTEPS_MAX_WORKERS",
        whole(1),
        "An elastic job lets no more workers in. bpslaunch --max-np.",
        default_text="no limit",
        listed=False,
    )
    elastic_timeout: float = option(
        600.0,
        "BYTEPS_ELASTIC_TIMEOUT",
        seconds(),
        "How long an elastic job waits for BYTEPS_MIN_WORKERS workers. bpslaunch "
        "--elastic-timeout.",
        listed=False,
    )
    reset_limit: int | None = option(
        None,
        "BYTEPS_RESET_LIMIT",
        whole(0),
        "How often the workers of an elastic job may change before it ends with an error. "
        "bpslaunch --reset-limit.",
        default_text="no limit",
        listed=False,
    )
    member: str | None = option(
        None,
        "BYTEPS_MEMBER",
        text(64),
        "This worker's name in an elastic job, which it keeps when ranks change.",
        default_text="drawn at random",
        listed=False,
    )
    log_level: str = option(
        "WARNING",
        "BYTEPS_LOG_LEVEL",
        choice("DEBUG", "INFO", "WARNING", "ERROR", aliases={"TRACE": "DEBUG", "FATAL": "ERROR"}),
        "Messages below this level are not printed (TRACE means DEBUG, FATAL means ERROR).",
    )
    log_format: str = option(
        "text",
        "BYTEPS_LOG_FORMAT",
        choice("text", "json"),
        "json writes each message as one JSON object on a line (see [logs](logs.md)).",
    )
    server_stats_file: str | None = option(
        None,
        "BYTEPS_SERVER_STATS_FILE",
        text(),
        "Where each server writes its counters as JSON when it ends: its rank goes before the "
        "suffix (stats.json becomes stats.0.json); in a directory the file is server-0.json.",
        listed=False,
    )
    timeline: str | None = option(
        None,
        "BYTEPS_TIMELINE",
        text(),
        "Where each worker and server writes a Chrome trace of its exchanges, and the scheduler "
        "one of its events (see [timeline](timeline.md)): trace.json becomes trace.0.json for "
        "worker 0, trace.server-0.json for server 0 and trace.scheduler.json; in a directory "
        "worker-0.json, timeline-server-0.json and timeline-scheduler.json.",
    )
    metrics_port: str | None = option(
        None,
        "BYTEPS_METRICS_PORT",
        text(),
        "Every process serves [metrics](metrics.md) for Prometheus at this port, or at the next "
        "free one: processes of a host take consecutive ports.",
    )
    metrics_address: str = option(
        "127.0.0.1",
        "BYTEPS_METRICS_ADDRESS",
        text(),
        "Address at which metrics are served. 0.0.0.0: all; whoever reaches the port reads them.",
    )
    summary_file: str | None = option(
        None,
        "BYTEPS_SUMMARY_FILE",
        text(),
        "Where a worker leaves what it has counted, for the last line of bpslaunch, which sets it.",
        listed=False,
    )


FIELDS = {f.name: f for f in dataclasses.fields(Options)}
OPTIONS = {name: f.metadata["option"] for name, f in FIELDS.items()}
