"""The configuration of a tf_byteps process: one typed, checked and printable object.

`python -m tf_byteps.config` prints what this environment amounts to, and where each value comes
from; with `--markdown` the table of all settings.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from tf_byteps.errors import ConfigError
from tf_byteps.options import choice, flag, option, seconds, text, whole
from tf_byteps.original_variables import IGNORED
from tf_byteps.rendezvous.environments import SOURCES
from tf_byteps.rendezvous.environments.merging import add_place
from tf_byteps.topology import Topology, topology_of

_MAX_PORT = 65535
_ENABLE_RDMA = "DMLC_ENABLE_RDMA"
_YES = ("1", "true", "yes", "on", "ibverbs")
_NO = ("0", "false", "no", "off", "zmq")

_logger = logging.getLogger("tf_byteps")
_mentioned = set()  # variables that this process has been told about


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of one process. Arguments win over the environment, that over defaults.

    Every field has one environment variable, see `python -m tf_byteps.config --markdown`. With
    nothing configured the process is the only worker and opens no socket.

    Attributes:
        sources: where each value that is no default comes from: an environment variable's name,
            "TF_CONFIG", "argument" or "scheduler".

    Raises:
        ConfigError: a value has the wrong form, or values contradict each other.

    Example:

    >>> Config.from_environment({"BYTEPS_PARTITION_BYTES": "65536"}).part_bytes
    65536
    """

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
        whole(0, _MAX_PORT),
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
    )
    global_size: int | None = option(
        None,
        "BYTEPS_GLOBAL_SIZE",
        whole(1),
        "Number of workers in the job.",
        default_text="DMLC_NUM_WORKER x BYTEPS_LOCAL_SIZE",
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
        0, "BYTEPS_SERVER_PORT", whole(0, _MAX_PORT), "Port of this process's server. 0: any free."
    )
    host_id: str | None = option(
        None,
        "BYTEPS_HOST_ID",
        text(200),
        "Processes with the same text count as being on one machine.",
        default_text="boot id and network namespace",
    )
    one_machine: bool = option(
        False,
        "BYTEPS_ONE_MACHINE",
        flag(),
        "All processes of the job are on this machine: where its name stands for a loopback "
        "address, they meet there.",
        default_text="yes if the launcher says so, as TF_CONFIG with one host does",
    )
    job_id: str | None = option(
        None,
        "BYTEPS_JOB_ID",
        text(64),
        "Tells jobs apart: processes with another text are refused.",
        default_text="drawn by the scheduler",
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
        "Lets a job without a secret listen at addresses that other machines reach: everybody "
        "there can take part in it, read its weights and end it.",
    )
    tls: bool = option(
        False,
        "BYTEPS_TLS",
        flag(),
        "All that processes of the job send to each other is encrypted, with TLS 1.3 and keys that "
        "follow from the job's secret (see [security](security.md)). bpslaunch --tls.",
        shared=True,
    )
    colocated_server: bool | None = option(
        None,
        "BYTEPS_COLOCATED_SERVER",
        flag(),
        "Whether this worker's process also runs a server.",
        default_text="yes if there are several workers and no server processes",
    )
    colocated_scheduler: bool | None = option(
        None,
        "BYTEPS_COLOCATED_SCHEDULER",
        flag(),
        "Whether this worker's process also runs the scheduler.",
        default_text="no; with TF_CONFIG: yes in the first worker",
    )
    force_distributed: bool = option(
        False,
        "BYTEPS_FORCE_DISTRIBUTED",
        flag(),
        "Go through a server even with one worker.",
    )
    part_bytes: int | None = option(
        None,
        "BYTEPS_PARTITION_BYTES",
        whole(8, unit="bytes"),
        "Longest part into which a tensor is cut.",
        default_text="1/128 of the gradients' bytes divided by the workers' hosts, 128 to 512 KB, "
        "and no more than 1/16 of what the links carry in 20 ms (but 64 KB, if that is more), and "
        "less where so many servers could not have two of them each, but not below what the links "
        "carry in 0.1 ms, up to 128 KB; on one host 1/64 of the "
        "gradients' bytes, up to 4 MB",
        shared=True,
    )
    credit_bytes: int | None = option(
        None,
        "BYTEPS_CREDIT_BYTES",
        whole(1, unit="bytes"),
        "Bytes on the way from a worker to all servers.",
        default_text="what the links carry in 20 ms, 256 KB to 16 MB; on one host, and until they "
        "have been measured, 16 of the longest parts, but 2 to 16 MB",
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
    connections_per_server: int = option(
        1,
        "BYTEPS_CONNECTIONS_PER_SERVER",
        whole(1, 64),
        "Connections from a worker to each server; one TCP stream may not fill a fast network.",
        shared=True,
    )
    io_threads: int | None = option(
        None,
        "BYTEPS_IO_THREADS",
        whole(1, 64),
        "Threads that move bytes, in a worker or a server.",
        default_text="2, or 1 where there are fewer than 4 processors",
    )
    read_peer_memory: bool = option(
        True,
        "BYTEPS_ENABLE_IPC",
        flag(),
        "Processes of one machine read each other's memory instead of sending tensors through a "
        "socket, where the system allows it and the job has a secret.",
    )
    van: str = option(
        "tcp",
        "BYTEPS_VAN",
        choice("tcp", "rdma", "auto"),
        "How tensors travel between machines: by RDMA or not at all (rdma), or by RDMA where both "
        "ends have it (auto). DMLC_ENABLE_RDMA=1 means rdma. See docs/rdma.md.",
    )
    rdma_devices: str | None = option(
        None,
        "BYTEPS_RDMA_DEVICES",
        text(),
        "RDMA devices, such as mlx5_0 or mlx5_0:1 (its first port); connections take turns between "
        "several, with commas.",
        default_text="the one with this process's address, else the first one that is up",
    )
    rdma_gid_index: int | None = option(
        None,
        "BYTEPS_RDMA_GID_INDEX",
        whole(0, 255),
        "Entry of the device's table of GIDs.",
        default_text="RoCE v2 with the device's IPv4 address, if there is one",
    )
    rdma_traffic_class: int = option(
        0, "BYTEPS_RDMA_TRAFFIC_CLASS", whole(0, 255), "Traffic class of RDMA packets (DSCP x 4)."
    )
    rdma_service_level: int = option(
        0, "BYTEPS_RDMA_SERVICE_LEVEL", whole(0, 15), "Service level of RDMA packets."
    )
    rdma_spin_microseconds: int | None = option(
        None,
        "BYTEPS_RDMA_SPIN_MICROSECONDS",
        whole(0, 10_000, unit="microseconds"),
        "How long a thread goes on polling after RDMA traffic before it sleeps; 0: not at all.",
        default_text="20, or 0 where there are fewer than 4 processors",
    )
    connect_timeout: float = option(
        60.0,
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
        1800.0,
        "BYTEPS_OPERATION_TIMEOUT",
        seconds(zero_means="no limit"),
        "How long the exchange of a tensor may take.",
        shared=True,
    )
    stall_warning: float = option(
        60.0,
        "BYTEPS_STALL_WARNING_SECONDS",
        seconds(zero_means="never"),
        "A tensor that waits longer for other workers is reported in the log: who has sent it, who "
        "has not, and what those are doing.",
        shared=True,
    )
    stall_shutdown: float = option(
        0.0,
        "BYTEPS_STALL_SHUTDOWN_SECONDS",
        seconds(zero_means="never"),
        "A tensor that waits longer for other workers ends the job with an error.",
        shared=True,
    )
    heartbeat_interval: float = option(
        5.0,
        "BYTEPS_HEARTBEAT_INTERVAL",
        seconds(),
        "How often processes show that they are alive.",
        shared=True,
    )
    heartbeat_timeout: float = option(
        30.0,
        "BYTEPS_HEARTBEAT_TIMEOUT",
        seconds(),
        "A process that is silent for so long counts as lost.",
        shared=True,
    )
    shutdown_timeout: float = option(
        60.0,
        "BYTEPS_SHUTDOWN_TIMEOUT",
        seconds(),
        "How long a process that hosts a server or the scheduler waits for the others to end.",
        shared=True,
    )
    deterministic: bool = option(
        False,
        "BYTEPS_DETERMINISTIC",
        flag(),
        "Servers add the workers' tensors in rank order, so that a sum does not depend on who is "
        "first. See [determinism](determinism.md).",
        default_text="what tf.config.experimental.enable_op_determinism() says",
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
    min_compress_bytes: int = option(
        65536,
        "BYTEPS_MIN_COMPRESS_BYTES",
        whole(0, unit="bytes"),
        "Shorter tensors are sent as they are where a codec is asked for that is not a cast. "
        "See [compression](compression.md).",
        shared=True,
    )
    max_lag: int = option(
        2,
        "BYTEPS_MAX_LAG",
        whole(1, 1000),
        "Rounds of a gradient that a worker may be behind the others with BYTEPS_BACKUP_WORKERS; "
        "then they wait. Servers keep so many results.",
        shared=True,
    )
    server_failover: bool = option(
        True,
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
    )
    max_workers: int | None = option(
        None,
        "BYTEPS_MAX_WORKERS",
        whole(1),
        "An elastic job lets no more workers in. bpslaunch --max-np.",
        default_text="no limit",
    )
    elastic_timeout: float = option(
        600.0,
        "BYTEPS_ELASTIC_TIMEOUT",
        seconds(),
        "How long an elastic job waits for BYTEPS_MIN_WORKERS workers. bpslaunch "
        "--elastic-timeout.",
    )
    reset_limit: int | None = option(
        None,
        "BYTEPS_RESET_LIMIT",
        whole(0),
        "How often the workers of an elastic job may change before it ends with an error. "
        "bpslaunch --reset-limit.",
        default_text="no limit",
    )
    member: str | None = option(
        None,
        "BYTEPS_MEMBER",
        text(64),
        "This worker's name in an elastic job, which it keeps when ranks change.",
        default_text="drawn at random",
    )
    check_weights: str = option(
        "warning",
        "BYTEPS_CHECK_WEIGHTS",
        choice("warning", "error", "off"),
        "What happens if the workers' weights, optimizers or learning rates differ at the end of "
        "an epoch of BytePSStrategy, or before the first step of a DistributedOptimizer. Worker "
        "0's setting counts. off saves reading them all.",
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
    )
    timeline: str | None = option(
        None,
        "BYTEPS_TIMELINE",
        text(),
        "Where each worker and server writes a Chrome trace of its exchanges (see "
        "[timeline](timeline.md)): trace.json becomes trace.0.json for worker 0 and "
        "trace.server-0.json for server 0; in a directory worker-0.json and "
        "timeline-server-0.json.",
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
    )
    sources: Mapping[str, str] = dataclasses.field(
        default_factory=dict, compare=False, repr=False, kw_only=True
    )

    @classmethod
    def from_environment(
        cls, env: Mapping[str, str] | None = None, default_role: str = "worker", **overrides: Any
    ) -> Config:
        """Reads the configuration from environment variables.

        Args:
            env: a mapping of variables. Default: this process's environment.
            default_role: the role if nothing names one.
            **overrides: field values that win over the environment.

        Returns:
            A `Config`.

        Raises:
            ConfigError: a variable or argument has the wrong form, or they contradict each other.
        """
        env = os.environ if env is None else env
        mention_unknown_variables(env)
        values, sources = {}, {}
        for name, described in OPTIONS.items():
            if env.get(described.variable, "").strip():
                values[name] = described.read(env[described.variable])
                sources[name] = described.variable
        _merge_enable_rdma(env, values, sources)
        add_place(env, values, sources)
        _check_names(overrides)
        values.update(overrides)
        sources.update(dict.fromkeys(overrides, "argument"))
        values.setdefault("role", default_role)
        return cls(**values, sources=sources)

    def replace(self, source: str = "argument", **changes: Any) -> Config:
        """A copy with other values.

        Args:
            source: where they come from, for error messages.
            **changes: the values, by field name.

        Returns:
            A `Config`.

        Raises:
            ConfigError: see the class.
        """
        _check_names(changes)
        sources = {**self.sources, **dict.fromkeys(changes, source)}
        return dataclasses.replace(self, **changes, sources=sources)

    def __post_init__(self) -> None:
        for name, described in OPTIONS.items():
            value = getattr(self, name)
            if value is None and _FIELDS[name].default is None:
                continue
            if not described.kind.accepts(value):
                raise ConfigError(f"{self.named(name)}, but must be {described.kind.description}")
        if self.role == "worker":
            self._check_ranks()
            self._check_servers()
        self._check_elastic()
        if self.role != "evaluator":
            self._check_scheduler()
        if self.job_secret is not None and self.job_secret_file is not None:
            raise ConfigError(
                f"{self.named('job_secret')}, and {self.named('job_secret_file')}: unset one"
            )
        self._check_tls()
        if self.backup_workers and self.deterministic:
            raise ConfigError(
                f"{self.named('backup_workers')}, and {self.named('deterministic')}: with backup "
                "workers the time of arrival decides what is in an average; set one of them only"
            )
        if self.heartbeat_timeout <= self.heartbeat_interval:
            raise ConfigError(
                f"{self.named('heartbeat_timeout')}, but must be longer than "
                f"{self.named('heartbeat_interval')}"
            )

    def named(self, name: str) -> str:
        """A field's value in words, under the name by which its user set it.

        Args:
            name: the field's name.

        Returns:
            For example `"BYTEPS_PARTITION_BYTES (part_bytes) is 65536"`.
        """
        source = self.sources.get(name, "")
        known = OPTIONS[name].variable if source in ("", "argument", "scheduler") else source
        label = f"{known} ({name})" if source != known else known
        if source in SOURCES:
            label = f"{name} of {source}"
        return f"{label} is {OPTIONS[name].shown(getattr(self, name))}"

    def is_set(self, name: str) -> bool:
        """Whether a field was set, by a variable or an argument, even to its default.

        Args:
            name: the field's name.

        Returns:
            A boolean.
        """
        return name in self.sources

    @functools.cached_property
    def topology(self) -> Topology:
        """Where this process stands in its job, a `Topology`."""
        return topology_of(self)

    @property
    def size(self) -> int:
        """Number of workers in the job, as far as this process was told."""
        return self.topology.size

    @property
    def rank(self) -> int | None:
        """This worker's rank, or None if the scheduler is to assign one."""
        return self.topology.rank

    @property
    def distributed(self) -> bool:
        """Whether this process takes part in a job with a scheduler and servers."""
        return bool(self.topology.reason)

    @property
    def elastic(self) -> bool:
        """Whether the number of workers may change while the job runs."""
        return self.min_workers is not None

    @property
    def has_secret(self) -> bool:
        """Whether this process was given the job's secret, or a file with it."""
        return self.job_secret is not None or self.job_secret_file is not None

    @property
    def on_one_machine(self) -> bool:
        """Whether all processes of the job are known to be on this machine."""
        return self.topology.on_one_machine

    @property
    def hosts_server(self) -> bool:
        """Whether this process is a worker that also runs a server."""
        return self.topology.hosts_server

    @property
    def hosts_scheduler(self) -> bool:
        """Whether this process is a worker that also runs the scheduler."""
        return self.topology.hosts_scheduler

    def shared_values(self) -> dict[str, float]:
        """The values that must be the same in all processes of a job.

        Returns:
            A dict of numbers, by field name.
        """
        values = {name: getattr(self, name) for name, o in OPTIONS.items() if o.shared}
        # The engine chooses what is 0. Flags are numbers, too.
        return {
            name: 0 if value is None else int(value) if isinstance(value, bool) else value
            for name, value in values.items()
        }

    def stated_values(self) -> dict[str, float]:
        """Of the shared values those that this process insists on.

        These are the ones that were set, and what its sockets do before it learns of the others'.

        Returns:
            A dict of numbers, by field name.
        """
        values = self.shared_values()
        return {n: v for n, v in values.items() if self.is_set(n) or n in _NEEDED_AT_ONCE}

    def with_shared_values(self, values: Mapping[str, float], source: str) -> Config:
        """A copy with the values that all processes of a job share.

        Args:
            values: what `shared_values` returned, here or in another process of the job.
            source: where they come from, for error messages.

        Returns:
            A `Config`.
        """
        chosen = {name: _own_form(name, value) for name, value in values.items()}
        return self.replace(source=source, **chosen)

    def _check_ranks(self) -> None:
        for smaller, larger in (
            ("worker_id", "num_worker_machines"),
            ("local_rank", "local_size"),
            ("global_rank", "global_size"),
        ):
            value, limit = getattr(self, smaller), getattr(self, larger)
            if value is not None and limit is not None and value >= limit:
                raise ConfigError(
                    f"{self.named(smaller)}, but {self.named(larger)}: it must be from 0 to "
                    f"{limit - 1}"
                )
        if (self.global_rank is None) != (self.global_size is None):
            raise ConfigError(
                f"{self.named('global_rank')} and {self.named('global_size')}: set both or neither"
            )
        if self.global_size is not None and self.global_size < self.local_size:
            raise ConfigError(f"{self.named('global_size')}, but {self.named('local_size')}")

    def _check_servers(self) -> None:
        several = self.size > 1 or self.elastic
        if several and self.num_servers == 0 and self.colocated_server is False:
            raise ConfigError(
                f"{self.named('colocated_server')} and {self.named('num_servers')}: several "
                f"workers need a server; unset BYTEPS_COLOCATED_SERVER or start a server process"
            )

    def _check_tls(self) -> None:
        if not self.tls:
            return
        if self.distributed and not self.has_secret:
            raise ConfigError(
                f"{self.named('tls')}, but there is no secret from which its keys could follow: "
                f"set BYTEPS_JOB_SECRET or BYTEPS_JOB_SECRET_FILE, or start the job with bpslaunch"
            )
        if self.van == "rdma":
            raise ConfigError(
                f"{self.named('tls')}, and {self.named('van')}: RDMA does not encrypt; set one of "
                f"them only, or BYTEPS_VAN=auto, which goes on over TCP"
            )

    def _check_elastic(self) -> None:
        if not self.elastic:
            return
        if self.colocated_scheduler:
            raise ConfigError(
                f"{self.named('min_workers')}, and {self.named('colocated_scheduler')}: an elastic "
                f"job would be lost with that worker; start the job with bpslaunch, or a scheduler "
                f"process with python -m tf_byteps.scheduler"
            )
        if self.max_workers is not None and self.max_workers < (self.min_workers or 0):
            raise ConfigError(
                f"{self.named('max_workers')}, but {self.named('min_workers')}: it must be as many"
            )

    def _check_scheduler(self) -> None:
        if not self.distributed or (self.hosts_scheduler and self.size == 1):
            return
        why = self.named(self.topology.reason)
        for name in ("scheduler_host", "scheduler_port"):
            if getattr(self, name) is None:
                raise ConfigError(
                    f"{OPTIONS[name].variable} ({name}) is not set, but {why}: "
                    f"set DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT to the scheduler's address, or "
                    f"start the job with bpslaunch"
                )
        if self.scheduler_port == 0 and self.role != "scheduler":
            raise ConfigError(f"{self.named('scheduler_port')}; only a scheduler may choose a port")

    def __str__(self) -> str:
        rows = [(name, self._printed(name), self._origin(name)) for name in OPTIONS]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        return "\n".join(
            f"{name:{widths[0]}}  {value:{widths[1]}}  {origin}" for name, value, origin in rows
        )

    def _printed(self, name: str) -> str:
        value = getattr(self, name)
        if value is None:
            return ""
        return "(hidden)" if OPTIONS[name].hidden else str(value)

    def _origin(self, name: str) -> str:
        if name in self.sources:
            return "from " + self.sources[name]
        depends = OPTIONS[name].default_text
        return f"default ({depends})" if depends else "default"


# Shared values that processes need to reach each other: none can take them from another one.
_NEEDED_AT_ONCE = ("tls",)
_FIELDS = {f.name: f for f in dataclasses.fields(Config) if "option" in f.metadata}
OPTIONS = {name: f.metadata["option"] for name, f in _FIELDS.items()}


def _own_form(name: str, value: float) -> float | None:
    """The value of a field that all processes share, from the number that travels."""
    default = _FIELDS[name].default
    if default is None and value == 0:
        return None
    return bool(value) if isinstance(default, bool) else value


def _check_names(values: Iterable[str]) -> None:
    for name in values:
        if name not in OPTIONS:
            close = difflib.get_close_matches(name, OPTIONS, 1)
            hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(OPTIONS)}"
            raise ConfigError(f"there is no setting {name!r}{hint}")


def _merge_enable_rdma(
    env: Mapping[str, str], values: dict[str, Any], sources: dict[str, str]
) -> None:
    """Reads the original's variable for RDMA, where BYTEPS_VAN does not say more."""
    given = env.get(_ENABLE_RDMA, "").strip()
    if not given or "van" in values:
        return
    kind = choice(
        "tcp", "rdma", aliases={**dict.fromkeys(_NO, "tcp"), **dict.fromkeys(_YES, "rdma")}
    )
    try:
        values["van"], sources["van"] = kind.read(given), _ENABLE_RDMA
    except ValueError:
        raise ConfigError(
            f'{_ENABLE_RDMA} is "{given}", but must be 1 (rdma) or 0 (tcp); or set BYTEPS_VAN'
        ) from None


def mention_unknown_variables(env: Mapping[str, str]) -> None:
    """Warns, once per process, of BYTEPS_ variables that do nothing."""
    known = {described.variable for described in OPTIONS.values()}
    for variable in env:
        if variable in known or variable in _mentioned:
            continue
        if variable in IGNORED:
            _logger.info("%s is not used by tf_byteps: %s", variable, IGNORED[variable])
        elif variable.startswith("BYTEPS_"):
            close = difflib.get_close_matches(variable, known, 1)
            hint = f"did you mean {close[0]}?" if close else "see python -m tf_byteps.config"
            _logger.warning("there is no setting %s; %s", variable, hint)
        else:
            continue
        _mentioned.add(variable)


def markdown() -> str:
    """The table of all settings for the documentation."""
    lines = ["| Variable | Field | Default | Unit | Meaning |", "|---|---|---|---|---|"]
    for name, described in OPTIONS.items():
        default = _FIELDS[name].default
        if described.default_text:
            default = described.default_text
        elif isinstance(default, bool):
            default = int(default)
        elif default is None:
            default = "none"
        meaning = described.help + (" Same in all processes of a job." if described.shared else "")
        lines.append(
            f"| `{described.variable}` | `{name}` | {default} | {described.kind.unit} | {meaning} |"
        )
    lines.append(
        "| `TF_CONFIG` | several | none |  | TensorFlow's description of a cluster: sets role, "
        "rank, number of workers and servers, and the scheduler's address. Other launchers' "
        "variables do the same: see [launchers](launchers.md). |"
    )
    return "\n".join(lines)


def _place_in_words(config: Config) -> str:
    """What this process is, and which variable or launcher says so."""
    reason = config.topology.reason
    if not reason:
        return "the only worker of its job"
    says = f"as {config.sources.get(reason, 'an argument')} says"
    if config.role != "worker":
        return f"a {config.role}, {says}"
    if config.elastic:
        return f"a worker of an elastic job, {says}"
    number = "a worker" if config.rank is None else f"worker {config.rank}"
    return f"{number} of {config.size}, {says}"


def _main() -> int:
    if sys.argv[1:] == ["--markdown"]:
        print(markdown())
        return 0
    if sys.argv[1:]:
        print("usage: python -m tf_byteps.config [--markdown]", file=sys.stderr)
        return 2
    try:
        config = Config.from_environment()
        print(f"{config}\n\nThis process is {_place_in_words(config)}.", flush=True)
    except BrokenPipeError:  # as in `python -m tf_byteps.config | head`
        # Nor can the interpreter flush what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ConfigError as error:
        print(f"tf_byteps: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
