"""The first line of bpslaunch."""

from __future__ import annotations

from tf_byteps.gpus import devices_in_words
from tf_byteps.launch.hosts import is_local
from tf_byteps.launch.launcher import Launcher
from tf_byteps.launch.plan import Plan
from tf_byteps.launch.settings import read_setting


def headline(workers: str, plan: Plan, launcher: Launcher, hosts: list[str] | None = None) -> str:
    """What is about to start, in a line.

    Args:
        workers: how many, in words.
        plan: a `Plan`.
        launcher: a `Launcher`.
        hosts: names of the hosts that are known. Default: those of the plan.
    """
    names = set(hosts or plan.host_names())
    devices = f" ({devices_in_words(launcher.environment)})" if all(map(is_local, names)) else ""
    tls = "on" if read_setting(launcher.environment, "tls") else "off"
    servers = counted(plan.servers, "server") if plan.servers else "servers inside the workers"
    if not plan.needs_scheduler:
        return f"{workers}{devices}, alone"
    return f"{workers} on {counted(len(names), 'host')}{devices}, {servers}, TLS {tls}"


def counted(number: int, noun: str) -> str:
    """Such as "2 workers"."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
