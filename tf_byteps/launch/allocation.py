"""What Slurm has given to the batch script, or the shell of salloc, that runs bpslaunch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tf_byteps.environments.place import has, whole
from tf_byteps.environments.slurm import expand_nodes, tasks_per_node
from tf_byteps.errors import ConfigError
from tf_byteps.launch.hosts import Host


@dataclasses.dataclass(frozen=True)
class Allocation:
    """The nodes of a job of Slurm.

    Attributes:
        job_id: its number.
        groups: the nodes of each component, with their tasks; a heterogeneous job has several.
        has_tasks: whether the job was asked for a number of tasks.
    """

    job_id: str
    groups: tuple[tuple[Host, ...], ...]
    has_tasks: bool

    @property
    def is_heterogeneous(self) -> bool:
        return len(self.groups) > 1

    @property
    def nodes(self) -> list[str]:
        """The names of all nodes."""
        return [host.name for group in self.groups for host in group]

    def group_of(self, node: str) -> int | None:
        """The number of the component that a node belongs to; None: to none."""
        for number, group in enumerate(self.groups):
            if any(host.name == node for host in group):
                return number
        return None

    def worker_hosts(self, workers: int | None = None) -> list[Host]:
        """The nodes of the first component, each with as many workers as it has tasks.

        Args:
            workers: how many are wanted. If the job was not asked for a number of tasks, the nodes
                share them. Default: one for each task.
        """
        hosts = self.groups[0]
        if self.has_tasks or workers is None:
            return list(hosts)
        each, more = divmod(workers, len(hosts))
        shares = [each + (number < more) for number in range(len(hosts))]
        return [Host(host.name, share) for host, share in zip(hosts, shares, strict=True) if share]

    def server_hosts(self) -> list[str]:
        """The nodes of the other components, each as often as it has tasks."""
        return [host.name for group in self.groups[1:] for host in group for _ in range(host.slots)]


def read_allocation(environment: Mapping[str, str]) -> Allocation | None:
    """Reads Slurm's variables.

    Args:
        environment: variables of this process.

    Returns:
        An `Allocation`. None outside of Slurm, and in one of several tasks of a step: each of them
        is to start a job of its own.

    Raises:
        ConfigError: the variables are malformed.
    """
    if not has(environment, "SLURM_JOB_ID", "SLURM_JOB_NODELIST"):
        return None
    is_step = has(environment, "SLURM_STEP_NUM_TASKS")
    if is_step and whole(environment, "SLURM_STEP_NUM_TASKS") > 1:
        return None
    suffixes = [""]
    if has(environment, "SLURM_HET_SIZE"):
        suffixes = [f"_HET_GROUP_{n}" for n in range(whole(environment, "SLURM_HET_SIZE"))]
    # A step's variables of tasks are its own: one, like that of a shell of `srun --pty`.
    has_tasks = not is_step and has(environment, f"SLURM_NTASKS{suffixes[0]}")
    groups = tuple(_read_group(environment, suffix, is_step) for suffix in suffixes)
    return Allocation(environment["SLURM_JOB_ID"], groups, has_tasks)


def _read_group(environment: Mapping[str, str], suffix: str, is_step: bool) -> tuple[Host, ...]:
    names = (f"SLURM_JOB_NODELIST{suffix}", f"SLURM_TASKS_PER_NODE{suffix}")
    nodes, tasks = (environment.get(name, "") for name in names)
    hosts = expand_nodes(nodes, names[0])
    slots = [1] * len(hosts) if is_step or not tasks else tasks_per_node(tasks, names[1])
    if len(slots) != len(hosts):
        raise ConfigError(
            f"Slurm: {names[0]} is {nodes}, {len(hosts)} nodes, but {names[1]} is {tasks}"
        )
    return tuple(Host(name, count) for name, count in zip(hosts, slots, strict=True))
