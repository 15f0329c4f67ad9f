"""How tensors are cut, sent and summed."""

from __future__ import annotations

import dataclasses

from tf_byteps.config.declaring import ENGINE, choice, flag, option, text, whole


@dataclasses.dataclass(frozen=True)
class ExchangeOptions:
    """See `Options`."""

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
        ENGINE.network.read_peer_memory,
        "BYTEPS_ENABLE_IPC",
        flag(),
        "Processes of one machine read each other's memory instead of sending tensors through a "
        "socket, where the system allows it and the job has a secret.",
    )
    min_compress_bytes: int = option(
        ENGINE.compression.min_compress_bytes,
        "BYTEPS_MIN_COMPRESS_BYTES",
        whole(0, unit="bytes"),
        "Shorter tensors are not compressed, but for casts. See [compression](compression.md).",
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
        -1,
        "BYTEPS_ROW_SUM_WORKERS",
        whole(-1),
        "With at least this many workers, servers add up the rows of tf.IndexedSlices, instead of "
        "sending all workers' rows to each worker; 0: never; -1: where that moves clearly fewer "
        "bytes, which the first rows of each tensor show. In an elastic job, whose number of "
        "workers changes, other numbers than -1, 0 and 1 (always) mean 0. "
        "See [embeddings](compression.md#add-rows-up-on-servers).",
        default_text="-1: chosen for each tensor",
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
        ENGINE.network.rdma.traffic_class,
        "BYTEPS_RDMA_TRAFFIC_CLASS",
        whole(0, 255),
        "Traffic class of RDMA packets (DSCP x 4).",
        listed=False,
    )
    rdma_service_level: int = option(
        ENGINE.network.rdma.service_level,
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
        ENGINE.deterministic,
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
        "Averages of gradients do not wait for this many workers. Not in deterministic jobs. "
        "See [stragglers](stragglers.md).",
        shared=True,
    )
    max_lag: int = option(
        ENGINE.max_lag,
        "BYTEPS_MAX_LAG",
        whole(1, 1000),
        "How many rounds of a gradient a worker may be behind the others with "
        "BYTEPS_BACKUP_WORKERS; then they wait. Servers keep that many results.",
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
