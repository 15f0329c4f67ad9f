"""How a command gets to another host: by ssh, or by srun inside an allocation of Slurm.

Both connect the three standard streams. The command ends when its standard input does (`guard`).
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from tf_byteps.errors import ConfigError
from tf_byteps.launch.allocation import Allocation, read_allocation
from tf_byteps.launch.hosts import NEVER_PASSED

SSH, SRUN, SCONTROL = "ssh", "srun", "scontrol"
NAMES = (SSH, SRUN)
_ANSWER_SECONDS = 60.0  # Slurm's own commands ask again for some time
# What srun needs to find the allocation. The others of SLURM_ describe the step of bpslaunch, such
# as its number of tasks; srun would take them for options.
_OF_THE_JOB = ("SLURM_CONF", "SLURM_JOB_ID", "SLURM_HET_SIZE", "SLURM_JWT")
_OF_THE_CLUSTER = ("SLURM_CLUSTER", "SLURM_WORKING_CLUSTER")


class RemoteShell(Protocol):
    """A way to start commands on other hosts.

    Attributes:
        name: of the program that does it.
    """

    name: ClassVar[str]

    def require(self) -> None:
        """Returns if it can be used here, as far as that can be told before a host is reached.

        Raises:
            ConfigError: it cannot.
        """
        ...

    def command(
        self, host: str, command: Sequence[str], environment: Mapping[str, str]
    ) -> list[str]:
        """What to run here, so that a command runs on a host.

        Args:
            host: its name.
            command: a list of words.
            environment: variables that everybody on both machines may see in a list of processes.

        Raises:
            ConfigError: this shell does not reach the host.
        """
        ...

    def own_environment(self, environment: Mapping[str, str]) -> dict[str, str] | None:
        """The variables of what runs here; None: those of bpslaunch.

        Args:
            environment: the variables of the job's processes.
        """
        ...

    def remark(self, host: str, code: int) -> str:
        """What an exit code may mean besides the command's own end, in a sentence, or ""."""
        ...


@dataclasses.dataclass(frozen=True)
class Ssh:
    """Reaches hosts through their ssh servers.

    Attributes:
        port: of the ssh server, or None for ssh's own choice.
        identity: file with the private key, or None.
        options: further "Name=value" options.
    """

    name: ClassVar[str] = SSH
    port: int | None = None
    identity: str | None = None
    options: tuple[str, ...] = ()

    def require(self) -> None:
        """See `RemoteShell`: each host is another matter."""

    def command(
        self, host: str, command: Sequence[str], environment: Mapping[str, str]
    ) -> list[str]:
        """See `RemoteShell`. The command runs in the current directory's namesake."""
        # Never ask for a password: nobody sees the question among the output of many processes.
        line = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=10"]
        if self.port is not None:
            line += ["-p", str(self.port)]
        if self.identity is not None:
            line += ["-i", self.identity]
        for option in self.options:
            line += ["-o", option]
        variables = [f"{name}={value}" for name, value in sorted(environment.items())]
        script = (
            f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(['env', *variables, *command])}"
        )
        # The account's shell may be any; this much all of them understand.
        return [*line, "--", host, f"exec sh -c {shlex.quote(script)}"]

    def own_environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """See `RemoteShell`: ssh may need what bpslaunch has, such as its agent. Its configuration
        may have it pass variables on (SendEnv)."""
        return {name: value for name, value in os.environ.items() if name not in NEVER_PASSED}

    def remark(self, host: str, code: int) -> str:
        """See `RemoteShell`."""
        return f"ssh to {host} also exits with 255 if ssh itself fails" if code == 255 else ""


@dataclasses.dataclass(frozen=True)
class Srun:
    """Reaches the nodes of an allocation, each time by a step of one task.

    The step shares all that the job has on the node with the job's other steps. srun passes all
    variables on, as users of Slurm expect.

    Attributes:
        allocation: an `Allocation`.
    """

    name: ClassVar[str] = SRUN
    allocation: Allocation

    def require(self) -> None:
        """See `RemoteShell`. All of Slurm's commands need its daemons, and munge."""
        try:
            done = subprocess.run(
                [SCONTROL, "show", "job", self.allocation.job_id],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_ANSWER_SECONDS,
            )
        except FileNotFoundError:
            raise ConfigError(f"{SCONTROL} of Slurm is not installed, or not in PATH") from None
        except subprocess.TimeoutExpired:
            said = f"no answer in {_ANSWER_SECONDS:.0f} s"
        else:
            said = "; ".join(done.stderr.split("\n")).strip("; ")
            if done.returncode == 0:
                return
        raise ConfigError(
            f"{SCONTROL} cannot show Slurm's job {self.allocation.job_id} ({said}): check that "
            f"slurmctld and munged run, and that this user may ask them"
        )

    def command(
        self, host: str, command: Sequence[str], environment: Mapping[str, str]
    ) -> list[str]:
        """See `RemoteShell`."""
        group = self.allocation.group_of(host)
        if group is None:
            raise ConfigError(
                f"{host} is not a node of Slurm's job {self.allocation.job_id} "
                f"({','.join(self.allocation.nodes)}): --remote-shell ssh reaches other hosts"
            )
        line = [SRUN, "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={host}"]
        line += ["--cpu-bind=none", "--mpi=none"]
        if self.allocation.is_heterogeneous:
            line.append(f"--het-group={group}")
        variables = [f"{name}={value}" for name, value in sorted(environment.items())]
        return [*line, "env", *variables, *command]

    def own_environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """See `RemoteShell`. The secret goes to tasks by standard input only."""
        return {
            name: value
            for name, value in environment.items()
            if name not in NEVER_PASSED
            and (
                not name.startswith("SLURM_")
                or name in _OF_THE_JOB
                or name.startswith(_OF_THE_CLUSTER)
            )
        }

    def remark(self, host: str, code: int) -> str:
        """See `RemoteShell`. srun says itself, among the output, what has failed."""
        del host, code
        return ""


def new_remote_shell(
    options: argparse.Namespace, environment: Mapping[str, str], ssh_options: Sequence[str] = ()
) -> RemoteShell:
    """The one that options choose, or else this environment.

    Args:
        options: of `arguments.add_remote_arguments`.
        environment: variables of this process.
        ssh_options: further ones behind the user's: ssh takes the first value of an option.

    Raises:
        ConfigError: srun is chosen, but this is not an allocation, or with options for ssh.
    """
    allocation = read_allocation(environment)
    ssh = Ssh(options.ssh_port, options.ssh_identity, (*options.ssh_options, *ssh_options))
    is_for_ssh = ssh != Ssh(options=tuple(ssh_options))
    if options.remote_shell == SRUN and is_for_ssh:
        raise ConfigError("--remote-shell srun takes no options for ssh: remove one of them")
    if options.remote_shell == SRUN and allocation is None:
        raise ConfigError(
            "--remote-shell srun: this is not an allocation of Slurm (SLURM_JOB_ID and "
            "SLURM_JOB_NODELIST are not set, or srun has started several of this process); start "
            "bpslaunch in a script of sbatch, or by salloc"
        )
    if allocation is None or options.remote_shell == SSH or is_for_ssh:
        return ssh
    return Srun(allocation)
