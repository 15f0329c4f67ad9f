"""What must hold of a configuration: the form of each value, and what several say together."""

from __future__ import annotations

import typing

from tf_byteps.config.options import FIELDS, OPTIONS
from tf_byteps.errors import ConfigError

if typing.TYPE_CHECKING:
    from tf_byteps.config.config import Config


def check(config: Config) -> None:
    """Raises a `ConfigError` for a value of the wrong form, and where values contradict."""
    for name, described in OPTIONS.items():
        value = getattr(config, name)
        if value is None and FIELDS[name].default is None:
            continue
        if not described.kind.accepts(value):
            raise ConfigError(f"{config.named(name)}, but must be {described.kind.description}")
    if config.role == "worker":
        _check_ranks(config)
        _check_servers(config)
    _check_elastic(config)
    if config.role != "evaluator":
        _check_scheduler(config)
    if config.job_secret is not None and config.job_secret_file is not None:
        raise ConfigError(
            f"{config.named('job_secret')}, and {config.named('job_secret_file')}: unset one"
        )
    _check_tls(config)
    if config.backup_workers and config.deterministic:
        raise ConfigError(
            f"{config.named('backup_workers')}, and {config.named('deterministic')}: with backup "
            "workers the time of arrival decides what is in an average; set one of them only"
        )
    if config.heartbeat_timeout <= config.heartbeat_interval:
        raise ConfigError(
            f"{config.named('heartbeat_timeout')}, but must be longer than "
            f"{config.named('heartbeat_interval')}"
        )


def _check_ranks(config: Config) -> None:
    for smaller, larger in (
        ("worker_id", "num_worker_machines"),
        ("local_rank", "local_size"),
        ("global_rank", "global_size"),
    ):
        value, limit = getattr(config, smaller), getattr(config, larger)
        if value is not None and limit is not None and value >= limit:
            raise ConfigError(
                f"{config.named(smaller)}, but {config.named(larger)}: it must be from 0 to "
                f"{limit - 1}"
            )
    if (config.global_rank is None) != (config.global_size is None):
        raise ConfigError(
            f"{config.named('global_rank')} and {config.named('global_size')}: set both or neither"
        )
    if config.global_size is not None and config.global_size < config.local_size:
        raise ConfigError(f"{config.named('global_size')}, but {config.named('local_size')}")


def _check_servers(config: Config) -> None:
    several = config.size > 1 or config.elastic
    if several and config.num_servers == 0 and config.colocated_server is False:
        raise ConfigError(
            f"{config.named('colocated_server')} and {config.named('num_servers')}: several "
            f"workers need a server; unset BYTEPS_COLOCATED_SERVER or start a server process"
        )


def _check_tls(config: Config) -> None:
    if not config.tls:
        return
    if config.distributed and not config.has_secret:
        raise ConfigError(
            f"{config.named('tls')}, but there is no secret from which its keys could follow: "
            f"set BYTEPS_JOB_SECRET or BYTEPS_JOB_SECRET_FILE, or start the job with bpslaunch"
        )
    if config.van == "rdma":
        raise ConfigError(
            f"{config.named('tls')}, and {config.named('van')}: RDMA does not encrypt; set one of "
            f"them only, or BYTEPS_VAN=auto, which goes on over TCP"
        )


def _check_elastic(config: Config) -> None:
    if not config.elastic:
        return
    if config.colocated_scheduler:
        raise ConfigError(
            f"{config.named('min_workers')}, and {config.named('colocated_scheduler')}: an elastic "
            f"job would be lost with that worker; start the job with bpslaunch, or a scheduler "
            f"process with python -m tf_byteps.scheduler"
        )
    if config.max_workers is not None and config.max_workers < (config.min_workers or 0):
        raise ConfigError(
            f"{config.named('max_workers')}, but {config.named('min_workers')}: it must be as many"
        )


def _check_scheduler(config: Config) -> None:
    if not config.distributed or (config.hosts_scheduler and config.size == 1):
        return
    why = config.named(config.topology.reason)
    for name in ("scheduler_host", "scheduler_port"):
        if getattr(config, name) is None:
            raise ConfigError(
                f"{OPTIONS[name].variable} ({name}) is not set, but {why}: "
                f"set DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT to the scheduler's address, or "
                f"start the job with bpslaunch"
            )
    if config.scheduler_port == 0 and config.role != "scheduler":
        raise ConfigError(f"{config.named('scheduler_port')}; only a scheduler may choose a port")
