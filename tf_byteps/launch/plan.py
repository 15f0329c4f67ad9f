"""Which processes a job has, where they run, and which variables each gets."""

from __future__ import annotations

import dataclasses
import sys
import typing

from tf_byteps.errors import ConfigError
from tf_byteps.launch.hosts import Host

if typing.TYPE_CHECKING:
    from tf_byteps.config import Config

# Says where a process stands in a job: never inherited from the environment of bpslaunch.
TOPOLOGY = (
    "TF_CONFIG",
    "DMLC_ROLE",
    "DMLC_PS_ROOT_URI",
    "DMLC_PS_ROOT_PORT",
    "DMLC_NUM_WORKER",
    "DMLC_NUM_SERVER",
    "DMLC_WORKER_ID",
    "DMLC_NODE_HOST",
    "BYTEPS_LOCAL_RANK",
    "BYTEPS_LOCAL_SIZE",
    "BYTEPS_GLOBAL_RANK",
    "BYTEPS_GLOBAL_SIZE",
    "BYTEPS_SERVER_ID",
    "BYTEPS_JOB_ID",
    "BYTEPS_COLOCATED_SCHEDULER",
    "BYTEPS_MIN_WORKERS",
    "BYTEPS_MAX_WORKERS",
    "BYTEPS_MEMBER",
)


@dataclasses.dataclass(frozen=True)
class Task:
    """A process to start."""

    role: str
    number: int
    host: str
    command: tuple[str, ...]
    variables: dict[str, str]

    @property
    def label(self) -> str:
        return self.role if self.role == "scheduler" else f"{self.role} {self.number}"


@dataclasses.dataclass(frozen=True)
class Plan:
    """A job as the user asked for it.

    Attributes:
        workers: number of workers.
        servers: number of server processes; 0: every worker hosts a server.
        hosts: where workers run, filled in order.
        server_hosts: where servers run, in turn.
        job_id: tells this job from others on the same hosts.
        command: what a worker runs.
        scheduler_port: the scheduler's; 0: it chooses one.
    """

    workers: int
    servers: int
    hosts: tuple[Host, ...]
    server_hosts: tuple[str, ...]
    job_id: str
    command: tuple[str, ...]
    scheduler_port: int = dataclasses.field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        slots = sum(host.slots for host in self.hosts)
        if self.workers > slots:
            listed = ",".join(f"{host.name}:{host.slots}" for host in self.hosts)
            raise ConfigError(
                f"-np {self.workers}, but {listed} takes only {slots} worker{'s' * (slots > 1)}: "
                f"allow more with -H"
            )

    @property
    def needs_scheduler(self) -> bool:
        return self.workers > 1 or self.servers > 0

    def workers_on_hosts(self) -> list[tuple[str, int]]:
        """Pairs of a host and how many workers it gets."""
        return [(host.name, count) for host, count in self._placed()]

    def host_names(self) -> list[str]:
        """All hosts that run something."""
        return [host.name for host, _ in self._placed()] + list(self.server_hosts)

    def scheduler_task(
        self,
        address: str,
        report_descriptor: int | None = None,
        orders_descriptor: int | None = None,
        stays: bool = False,
    ) -> Task:
        """The scheduler; it runs on this machine. `stays`: see `scheduler`."""
        module = (sys.executable, "-m", "tf_byteps.scheduler")
        if report_descriptor is not None:
            module += ("--report-fd", str(report_descriptor))
        if orders_descriptor is not None:
            module += ("--orders-fd", str(orders_descriptor))
        if stays:
            module += ("--stay",)
        variables = {**self._common(address, self.scheduler_port), "DMLC_ROLE": "scheduler"}
        return Task("scheduler", 0, "localhost", module, variables)

    def server_tasks(self, address: str, port: int, stay: bool = False) -> list[Task]:
        """The servers, on their hosts in turn. `stay`: see `server`."""
        module = (sys.executable, "-m", "tf_byteps.server", *(("--stay",) if stay else ()))
        tasks = []
        for number in range(self.servers):
            host = self.server_hosts[number % len(self.server_hosts)]
            variables = {"DMLC_ROLE": "server", "BYTEPS_SERVER_ID": str(number)}
            variables.update(self._common(address, port))
            tasks.append(Task("server", number, host, module, variables))
        return tasks

    def worker_tasks(self, address: str, port: int) -> list[Task]:
        """The workers, host by host."""
        if not self.needs_scheduler:
            # Whoever has started bpslaunch does not number its worker.
            alone = {"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "1"}
            return [Task("worker", 0, self.hosts[0].name, self.command, alone)]
        tasks = []
        for machine, (host, count) in enumerate(self._placed()):
            for local_rank in range(count):
                variables = {
                    **self._common(address, port),
                    "DMLC_ROLE": "worker",
                    "DMLC_WORKER_ID": str(machine),
                    "BYTEPS_LOCAL_RANK": str(local_rank),
                    "BYTEPS_LOCAL_SIZE": str(count),
                    "BYTEPS_GLOBAL_RANK": str(len(tasks)),
                }
                tasks.append(Task("worker", len(tasks), host.name, self.command, variables))
        return tasks

    def _placed(self) -> list[tuple[Host, int]]:
        """Pairs of a host and how many workers it gets."""
        left, placed = self.workers, []
        for host in self.hosts:
            count = min(host.slots, left)
            left -= count
            if count:
                placed.append((host, count))
        return placed

    def _common(self, address: str, port: int) -> dict[str, str]:
        return {
            "DMLC_PS_ROOT_URI": address,
            "DMLC_PS_ROOT_PORT": str(port),
            "DMLC_NUM_WORKER": str(len(self._placed())),
            "DMLC_NUM_SERVER": str(self.servers),
            "BYTEPS_GLOBAL_SIZE": str(self.workers),
            "BYTEPS_JOB_ID": self.job_id,
        }


@dataclasses.dataclass(frozen=True)
class ElasticPlan(Plan):
    """A job whose number of workers may change.

    Attributes:
        workers: how many are started first.
        limits: the settings of the elastic job, as environment variables.
    """

    limits: dict[str, str]

    def __post_init__(self) -> None:
        pass  # slots come and go

    @property
    def needs_scheduler(self) -> bool:
        return True

    def worker_task(self, address: str, port: int, number: int, host: Host, slot: int) -> Task:
        """A worker, which keeps its number while ranks change.

        Args:
            number: one that no worker of the job has had before.
            host: a `Host`.
            slot: its number among the workers of the host.
        """
        variables = {
            **self._common(address, port),
            "DMLC_ROLE": "worker",
            "BYTEPS_LOCAL_RANK": str(slot),
            "BYTEPS_LOCAL_SIZE": str(max(host.slots, slot + 1)),
            "BYTEPS_MEMBER": str(number),
        }
        return Task("worker", number, host.name, self.command, variables)

    def _common(self, address: str, port: int) -> dict[str, str]:
        common = super()._common(address, port)
        for name in ("DMLC_NUM_WORKER", "BYTEPS_GLOBAL_SIZE"):
            del common[name]
        return {**common, **self.limits}


def tasks_of_one_role(config: Config, command: tuple[str, ...]) -> list[Task]:
    """What DMLC_ROLE names: this machine's workers, or one server or scheduler.

    All other variables are in the environment already.
    """
    if config.role != "worker":
        module = (sys.executable, "-m", f"tf_byteps.{config.role}")
        return [Task(config.role, config.server_id or 0, "localhost", module, {})]
    first = (config.worker_id or 0) * config.local_size
    tasks = []
    for local_rank in range(config.local_size):
        variables = {
            "BYTEPS_LOCAL_RANK": str(local_rank),
            "BYTEPS_LOCAL_SIZE": str(config.local_size),
        }
        tasks.append(Task("worker", first + local_rank, "localhost", command, variables))
    return tasks
