"""How long processes wait for each other, and what happens when one is lost."""

from __future__ import annotations

import dataclasses

from tf_byteps.config.declaring import ENGINE, flag, option, seconds, text, whole


@dataclasses.dataclass(frozen=True)
class FaultOptions:
    """See `Options`."""

    connect_timeout: float = option(
        ENGINE.timeouts.connect_timeout,
        "BYTEPS_CONNECT_TIMEOUT",
        seconds(),
        "How long a process tries to reach another one.",
        shared=True,
    )
    rendezvous_timeout: float = option(
        600.0,
        "BYTEPS_RENDEZVOUS_TIMEOUT",
        seconds(),
        "How long processes wait for all others of the job, and for the scheduler's first "
        "answer: the machine of rank 0 may start last.",
    )
    operation_timeout: float = option(
        ENGINE.timeouts.operation_timeout,
        "BYTEPS_OPERATION_TIMEOUT",
        seconds(zero_means="no limit"),
        "How long the exchange of a tensor may take.",
        shared=True,
    )
    stall_warning: float = option(
        ENGINE.timeouts.stall_warning,
        "BYTEPS_STALL_WARNING_SECONDS",
        seconds(zero_means="never"),
        "A tensor that waits longer for other workers is reported in the log: who has sent it, who "
        "has not, and what those are doing.",
        shared=True,
    )
    stall_shutdown: float = option(
        ENGINE.timeouts.stall_shutdown,
        "BYTEPS_STALL_SHUTDOWN_SECONDS",
        seconds(zero_means="never"),
        "A tensor that waits longer for other workers ends the job with an error.",
        default_text="0 (never)",
        shared=True,
    )
    heartbeat_interval: float = option(
        ENGINE.timeouts.heartbeat_interval,
        "BYTEPS_HEARTBEAT_INTERVAL",
        seconds(),
        "How often processes show that they are alive.",
        shared=True,
        listed=False,
    )
    heartbeat_timeout: float = option(
        ENGINE.timeouts.heartbeat_timeout,
        "BYTEPS_HEARTBEAT_TIMEOUT",
        seconds(),
        "A process that is silent for longer counts as lost.",
        shared=True,
    )
    shutdown_timeout: float = option(
        ENGINE.timeouts.shutdown_timeout,
        "BYTEPS_SHUTDOWN_TIMEOUT",
        seconds(),
        "How long a process that hosts a server or the scheduler waits for the others to end.",
        shared=True,
    )
    server_failover: bool = option(
        ENGINE.server_failover,
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
        "How long server and scheduler processes wait, after a loss, for the job's "
        "processes to come together again; then they end with exit code 1.",
    )
    min_workers: int | None = option(
        None,
        "BYTEPS_MIN_WORKERS",
        whole(1),
        "Makes the job elastic (see [elastic](elastic.md)): it goes on, with other ranks, as long "
        "as there are this many workers. bpslaunch --min-np.",
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
