"""Where a process stands in its job: computed once, from its settings."""

from __future__ import annotations

import dataclasses
import typing

if typing.TYPE_CHECKING:
    from tf_byteps.config.config import Config


@dataclasses.dataclass(frozen=True)
class Topology:
    """A process's place in its job.

    Attributes:
        size: number of workers, as far as this process was told.
        rank: this worker's rank; None: the scheduler is to assign one.
        reason: the setting because of which the job has a scheduler and servers; "": it has none.
        hosts_server: whether this is a worker that also runs a server.
        hosts_scheduler: whether this is a worker that also runs the scheduler.
        on_one_machine: whether all processes of the job are known to be on this machine.
    """

    size: int = 1
    rank: int | None = 0
    reason: str = ""
    hosts_server: bool = False
    hosts_scheduler: bool = False
    on_one_machine: bool = True


def topology_of(config: Config) -> Topology:
    """The `Topology` that a `Config` amounts to."""
    reason = _reason(config)
    if config.role == "evaluator" or (config.role == "worker" and not reason):
        return Topology()
    size = _size(config)
    if config.role != "worker":
        return Topology(size, _rank(config, size), reason, on_one_machine=config.one_machine)
    is_alone = size == 1 and config.num_servers == 0 and not config.elastic
    hosts_scheduler = config.colocated_scheduler
    if hosts_scheduler is None:  # one worker that runs everything
        hosts_scheduler = is_alone and config.scheduler_host is None
    hosts_server = config.colocated_server
    if hosts_server is None:
        hosts_server = config.num_servers == 0
    here = size == config.local_size and config.num_servers == 0 and not config.elastic
    here = here or config.one_machine
    return Topology(size, _rank(config, size), reason, hosts_server, hosts_scheduler, here)


def _size(config: Config) -> int:
    return config.global_size or config.num_worker_machines * config.local_size


def _rank(config: Config, size: int) -> int | None:
    if size == 1 and not config.elastic:
        return 0
    if config.global_rank is not None:
        return config.global_rank
    if config.elastic or (config.worker_id is None and config.num_worker_machines > 1):
        return None
    return (config.worker_id or 0) * config.local_size + config.local_rank


def _reason(config: Config) -> str:
    if config.role != "worker":
        return "role"
    if _size(config) > 1:
        names = ("global_size", "num_worker_machines", "local_size")
        return next(name for name in names if (getattr(config, name) or 1) > 1)
    if config.num_servers > 0:
        return "num_servers"
    if config.elastic:
        return "min_workers"
    return "force_distributed" if config.force_distributed else ""
