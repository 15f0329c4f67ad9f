"""Which ports a job listens at: how many each host needs, and which ones the user allows."""

import collections
from collections.abc import Mapping

from tf_byteps.config import OPTIONS
from tf_byteps.environments.place import ports_in
from tf_byteps.errors import ConfigError
from tf_byteps.launch.hosts import is_local
from tf_byteps.launch.plan import Plan

_HERE = "localhost"
_OF_ROOT = OPTIONS["scheduler_port"]
_OF_SERVERS = OPTIONS["server_port"]
_RANGE = OPTIONS["ports"]


def scheduler_port(environment: Mapping[str, str], given: Mapping[str, str]) -> int:
    """The port that the user has chosen for the scheduler, or 0.

    Args:
        environment: variables of bpslaunch. Those of a process of another job do not count.
        given: those that its options set.
    """
    text = given.get(_OF_ROOT.variable, "")
    if not text and not environment.get("DMLC_ROLE"):
        text = environment.get(_OF_ROOT.variable, "")
    return _OF_ROOT.read(text) if text.strip() else 0


def needed(plan: Plan) -> dict[str, int]:
    """How many ports the processes of each host listen at.

    Metrics, if there are any, have others.
    """
    count = collections.Counter[str]()
    for name, workers in plan.workers_on_hosts():
        # Where the scheduler sees that a worker lives, and the worker's server.
        count[_machine(name)] += workers * (1 if plan.servers else 2)
    for host, servers in _servers(plan).items():
        count[host] += servers if plan.servers else 0
    # The scheduler, the coordinator, and where other hosts wait for bpstop's questions.
    count[_HERE] += (0 if plan.scheduler_port else 1) + 1
    count[_HERE] += int(set(count) != {_HERE})
    return dict(count)


def check(plan: Plan, environment: Mapping[str, str]) -> None:
    """Refuses ports that cannot be enough for a job.

    Args:
        plan: of the job.
        environment: variables of its processes.

    Raises:
        ConfigError: a host's processes need more.
    """
    port = environment.get(_OF_SERVERS.variable, "").strip()
    if port and _OF_SERVERS.read(port):
        for host, servers in _servers(plan).items():
            if servers > 1:
                raise ConfigError(
                    f"{_OF_SERVERS.variable} is {port}, but {host} runs {servers} servers, and "
                    f"each needs a port of its own: unset it, and allow several ports with "
                    f"--ports, such as --ports 20000-20063"
                )
    text = environment.get(_RANGE.variable, "").strip()
    if not text:
        return
    ports = ports_in(_RANGE.read(text))
    for host, count in needed(plan).items():
        if count > len(ports):
            raise ConfigError(
                f"--ports {text} has {len(ports)} ports, but the processes on {host} listen at "
                f"{count}: allow more"
            )


def _servers(plan: Plan) -> dict[str, int]:
    """How many servers each host runs, by itself or in its workers."""
    if not plan.servers:
        return {_machine(name): workers for name, workers in plan.workers_on_hosts()}
    hosts = [plan.server_hosts[n % len(plan.server_hosts)] for n in range(plan.servers)]
    return collections.Counter(map(_machine, hosts))


def _machine(name: str) -> str:
    return _HERE if is_local(name) else name
