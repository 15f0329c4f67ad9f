"""A real Slurm of three nodes on this machine: munged, slurmctld and three slurmd.

All that they write is in a temporary folder. The nodes share this machine's network; their names
stand for three loopback addresses in a mount namespace of the daemons, in which tasks run, too.
"""

import contextlib
import os
import socket
import subprocess

import psutil

from tests.cluster import ROOT, clean_environment, free_port, wait_until

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge")
NODES = ("node1", "node2", "node3")
_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=15
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=5
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool/%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=30 State=UP OverSubscribe=NO
"""


class Slurm:
    """A running cluster."""

    def __init__(self, folder):
        self._folder = folder
        self._daemons = []
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}

    def start(self):
        """Returns when all nodes are idle."""
        folder = self._folder
        for name in ("state", *(f"spool/{node}" for node in NODES)):
            (folder / name).mkdir(parents=True)
        folder.chmod(0o755)
        self._configure()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        files = {"key": key, "pid": "munged.pid", "log": "munged.log", "seed": "munged.seed"}
        options = [f"--{name}-file={folder / path}" for name, path in files.items()]
        self._start(
            "munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *options
        )
        wait_until((folder / "munge.socket").exists)
        self._start("slurmctld", "-D")
        hosts = folder / "hosts"
        names = [f"127.0.1.{number} {node}" for number, node in enumerate(NODES, 1)]
        hosts.write_text("\n".join(["127.0.0.1 localhost", *names, ""]))
        for node in NODES:
            script = 'mount --bind "$1" /etc/hosts && exec slurmd -D -N "$2"'
            self._start("unshare", "--mount", "sh", "-c", script, "sh", str(hosts), node)
        wait_until(lambda: self.run("sinfo", "-hN", "-o", "%t").stdout.split() == ["idle"] * 3)

    def stop(self):
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            daemon.wait(30)

    def run(self, *command, timeout=300, **variables):
        """Runs a command of Slurm's, with this cluster as its own."""
        return subprocess.run(
            command,
            cwd=ROOT,
            env=clean_environment(**self.environment, **variables),
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def srun(self, *arguments, **variables):
        """Runs tasks, each of which knows its node as a host of its own."""
        script = 'BYTEPS_HOST_ID=$SLURMD_NODENAME exec "$0" "$@"'
        *options, command = arguments
        return self.run("srun", *options, "sh", "-c", script, *command, **variables)

    def batch(self, folder, *arguments, **variables):
        """Runs a batch script to its end.

        Args:
            folder: for its output.
            *arguments: options of sbatch, and last the text of the script, or a list of its path
                and arguments.
            **variables: of its environment.

        Returns:
            The exit code, standard output and standard error.
        """
        *options, script = arguments
        if isinstance(script, str):
            (folder / "job.sh").write_text(f"#!/bin/sh\n{script}\n")
            script = [folder / "job.sh"]
        outputs = [folder / "out.txt", folder / "err.txt"]
        files = [f"--output={outputs[0]}", f"--error={outputs[1]}"]
        command = ["sbatch", "--wait", *files, *options, *map(str, script)]
        done = self.run(*command, timeout=900, **variables)
        assert all(map(os.path.exists, outputs)), done.stderr
        return done.returncode, *(file.read_text(errors="replace") for file in outputs)

    def processes(self):
        """All that runs on its nodes, with the variables of each."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                variables = process.environ()
                if variables.get("SLURM_CONF") == self.environment["SLURM_CONF"]:
                    found.append((process, variables))
        return found

    def _configure(self):
        ports = [free_port() for _ in range(1 + len(NODES))]
        host = socket.gethostname().partition(".")[0]
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4"
            for node, port in zip(NODES, ports[1:], strict=True)
        )
        text = _CONFIGURATION.format(host=host, ports=ports, folder=self._folder, nodes=nodes)
        (self._folder / "slurm.conf").write_text(text)
        # No cgroup is used, but slurmd looks for one.
        (self._folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")

    def _start(self, *command):
        with open(self._folder / f"{len(self._daemons)}.out", "wb") as file:
            self._daemons.append(
                subprocess.Popen(
                    command,
                    env=clean_environment(**self.environment),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                )
            )
