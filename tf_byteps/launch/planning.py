"""From options to the plan of a job: how many of what, on which hosts."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tf_byteps.errors import ConfigError
from tf_byteps.launch import ports
from tf_byteps.launch.allocation import read_allocation
from tf_byteps.launch.discovery import FixedHosts, HostScript
from tf_byteps.launch.hosts import Host, address_for, given_hosts, is_local
from tf_byteps.launch.launcher import Launcher
from tf_byteps.launch.plan import ElasticPlan, Plan
from tf_byteps.launch.settings import read_setting, variables_of
from tf_byteps.rendezvous.host import interface_address


def limits_of(options: argparse.Namespace) -> dict[str, str]:
    """What tells the processes of an elastic job about it."""
    limits = {
        "BYTEPS_MIN_WORKERS": options.min_workers or options.workers or 1,
        "BYTEPS_MAX_WORKERS": options.max_workers,
        "BYTEPS_ELASTIC_TIMEOUT": options.elastic_timeout,
        "BYTEPS_RESET_LIMIT": options.reset_limit,
    }
    return {name: str(value) for name, value in limits.items() if value is not None}


def scheduler_address(options: argparse.Namespace, launcher: Launcher, names: Sequence[str]) -> str:
    """Where processes on these hosts reach the scheduler, which runs on this machine."""
    interface = read_setting(launcher.environment, "interface")
    if interface and not (options.scheduler_host or all(map(is_local, names))):
        return interface_address(interface)
    return options.scheduler_host or address_for(names)


def new_discovery(
    options: argparse.Namespace, environment: Mapping[str, str], say: Callable[[str], None]
) -> FixedHosts | HostScript:
    """What finds the hosts of an elastic job, and says what goes wrong with that."""
    most = options.max_workers or options.workers
    if not options.host_script:
        hosts = _worker_hosts(options, environment, most)
        return FixedHosts(hosts or [Host("localhost", most or options.min_workers)])
    if options.hosts or options.hostfile:
        given = "-H" if options.hosts else "--hostfile"
        raise ConfigError(
            f"{given} and --host-discovery-script both say which hosts to use: give one of them"
        )
    return HostScript(options.host_script, options.slots_per_host, say)


def _worker_hosts(
    options: argparse.Namespace, environment: Mapping[str, str], workers: int | None
) -> list[Host] | None:
    """Those that are named, or those of Slurm's allocation; None: this machine."""
    given = given_hosts(options.hosts, options.hostfile)
    allocation = read_allocation(environment)
    return given if given or not allocation else allocation.worker_hosts(workers)


def new_plan(options: argparse.Namespace, environment: Mapping[str, str]) -> Plan:
    """The plan of a job whose workers stay the same."""
    hosts = _worker_hosts(options, environment, options.workers) or []
    workers = options.workers or sum(host.slots for host in hosts)
    hosts = hosts or [Host("localhost", workers)]
    common = _common(options, environment, hosts)
    return Plan(workers=workers, hosts=tuple(hosts), **common)


def new_elastic_plan(
    options: argparse.Namespace, environment: Mapping[str, str], hosts: Sequence[Host]
) -> ElasticPlan:
    """The plan of an elastic job, which has these hosts first."""
    common = _common(options, environment, hosts)
    return ElasticPlan(workers=0, hosts=(), limits=limits_of(options), **common)


def _common(
    options: argparse.Namespace, environment: Mapping[str, str], hosts: Sequence[Host]
) -> dict[str, Any]:
    """What all plans have."""
    return {
        "scheduler_port": ports.scheduler_port(environment, variables_of(options, environment)),
        "servers": _number_of_servers(options, environment),
        "server_hosts": tuple(_server_hosts(options, environment, hosts)),
        "job_id": secrets.token_hex(8),
        "command": tuple(options.command),
    }


def _number_of_servers(options: argparse.Namespace, environment: Mapping[str, str]) -> int:
    if options.servers is not None:
        return options.servers
    if options.server_hosts:
        return len(options.server_hosts.split(","))
    return len(_allocated_server_hosts(options, environment))


def _server_hosts(
    options: argparse.Namespace, environment: Mapping[str, str], hosts: Sequence[Host]
) -> list[str]:
    if not _number_of_servers(options, environment):
        return []
    if options.server_hosts:
        return [name.strip() for name in options.server_hosts.split(",")]
    allocated = _allocated_server_hosts(options, environment)
    return allocated or [host.name for host in hosts]


def _allocated_server_hosts(
    options: argparse.Namespace, environment: Mapping[str, str]
) -> list[str]:
    """The nodes that a heterogeneous job of Slurm has for servers."""
    named = options.hosts or options.hostfile or options.host_script
    allocation = None if named else read_allocation(environment)
    return allocation.server_hosts() if allocation else []
