"""`bpslaunch doctor`: from options to a report."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence

from rich.console import Console

from tf_byteps import __version__
from tf_byteps.config import OPTIONS
from tf_byteps.doctor.examination import examine
from tf_byteps.doctor.table import show
from tf_byteps.doctor.verdicts import judge
from tf_byteps.environments.place import ports_in
from tf_byteps.errors import BytePSError, ConfigError
from tf_byteps.gpus import visible_gpus
from tf_byteps.launch import ports
from tf_byteps.launch.allocation import read_allocation
from tf_byteps.launch.hosts import Host, address_for, given_hosts, is_local, passed_environment
from tf_byteps.launch.launcher import Launcher
from tf_byteps.launch.parser import add_host_arguments, add_ports_argument, add_remote_arguments
from tf_byteps.launch.plan import TOPOLOGY, Plan
from tf_byteps.launch.remote_shells import new_remote_shell
from tf_byteps.launch.settings import read_setting
from tf_byteps.rendezvous.roster import MOST_CONNECTIONS

_TO_FIX, _USAGE = 1, 2
_WIDTH = 150  # of what is not a terminal
# Behind the user's own: ssh takes the first value of an option.
_SSH_OPTIONS = ("ConnectTimeout=8",)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        arguments: words after "doctor". Default: those of this process.

    Returns:
        The exit code: 0 if all is well, 1 if there is something to fix, 2 for wrong use or if no
        host can be reached.
    """
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except BytePSError as error:
        print(f"bpslaunch doctor: {error}", file=sys.stderr)
        return _USAGE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bpslaunch doctor",
        description="Finds what would fail or be slow on a job's hosts, in 30 s at most; "
        "without -H on this machine (docs/doctor.md).",
    )
    job = parser.add_argument_group("the job")
    add_host_arguments(job)
    add_ports_argument(job)
    parser.add_argument("--scheduler-host", metavar="ADDRESS", help="as for bpslaunch")
    parser.add_argument("--network-interface", metavar="NAME", help="measure this network's links")
    add_remote_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print all values as JSON")
    parser.add_argument("--version", action="version", version=f"tf_byteps {__version__}")
    return parser


def _run(options: argparse.Namespace) -> int:
    hosts = _hosts(options)
    environment = {name: value for name, value in os.environ.items() if name not in TOPOLOGY}
    shell = new_remote_shell(options, environment, _SSH_OPTIONS)
    launcher = Launcher(environment, passed_environment(environment, ()), shell, 1.0)
    interface = options.network_interface or read_setting(environment, "interface") or ""
    address = options.scheduler_host or _address(hosts)
    allowed = options.ports or environment.get(OPTIONS["ports"].variable, "").strip()
    allowed = ports_in(OPTIONS["ports"].read(allowed)) if allowed else range(0, 1)
    report = examine(launcher, hosts, address, interface, allowed)
    report.ports = _needed_ports(hosts)
    if all(row.error for row in report.hosts):
        reasons = "; ".join(f"{row.name}: {row.error}" for row in report.hosts)
        raise ConfigError(f"no host can be examined: {reasons}")
    verdicts = judge(
        report,
        read_setting(environment, "connections_per_server") or MOST_CONNECTIONS,
        len(allowed) if allowed.start else None,
    )
    if options.json:
        judged = [dataclasses.asdict(each) for each in verdicts]
        print(json.dumps({**dataclasses.asdict(report), "verdicts": judged}, indent=2))
    else:
        show(report, verdicts, Console(width=None if sys.stdout.isatty() else _WIDTH))
    return 0 if all(each.is_note for each in verdicts) else _TO_FIX


def _hosts(options: argparse.Namespace) -> Sequence[Host]:
    """Those that are given, or that a scheduler of the cluster has allocated, or this one."""
    hosts = given_hosts(options.hosts, options.hostfile)
    allocation = read_allocation(os.environ)
    if not hosts and allocation:
        hosts = [host for group in allocation.groups for host in group]
    return hosts or [Host("localhost", max(1, len(visible_gpus(os.environ))))]


def _needed_ports(hosts: Sequence[Host]) -> dict[str, int]:
    """How many ports each host needs for a job with a worker and its server in each slot."""
    workers = sum(host.slots for host in hosts)
    plan = Plan(workers, 0, tuple(hosts), (), "", ())
    return ports.needed(plan) if plan.needs_scheduler else {}


def _address(hosts: Sequence[Host]) -> str:
    """As bpslaunch finds it; a name that is not known must not hide what the others say."""
    for host in hosts:
        if not is_local(host.name):
            try:
                return address_for([host.name])
            except ConfigError:
                continue
    return "127.0.0.1" if all(is_local(host.name) for host in hosts) else socket.gethostname()
