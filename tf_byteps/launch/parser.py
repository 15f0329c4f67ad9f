"""The options of bpslaunch, and the help on them."""

import argparse
import sys
from typing import NoReturn

from tf_byteps import __version__
from tf_byteps.launch import kubernetes, option_types, other_launchers, remote_shells
from tf_byteps.launch.output import say

_USAGE = 2

_DESCRIPTION = """\
Starts a training job: a scheduler, servers, and the workers that run the
command.

    bpslaunch -np 2 --servers 1 python train.py
    bpslaunch -H host1:4,host2 --servers 1 --server-hosts host3 python train.py
    bpslaunch --min-np 2 --host-discovery-script hosts.sh python train.py
    bpslaunch --config job.yaml python train.py
    bpslaunch -np 4 --dry-run kubernetes --image train:1 python train.py
    bpslaunch doctor -H host1:4,host2:4
    bpslaunch test -H host1:4,host2:4
    bpslaunch plan --parameters 110M --optimizer adam -np 4 --servers 2
    bpslaunch env

"doctor" starts no job, but finds what would fail or be slow on these hosts
(docs/doctor.md). "test" starts one of a few seconds, "plan" estimates memory
and bytes, and "env" prints what a bug report needs.

Without -np and -H, and with DMLC_ROLE set, it starts that one role of a job
whose other processes are started by hand: a worker's command BYTEPS_LOCAL_SIZE
times, or one server, or the scheduler.

All processes end together; the exit code is that of the first one that failed.
With --min-np or --host-discovery-script the job is elastic: workers that fail
are started again, and the others go on meanwhile (docs/elastic.md).
"""

DRY_RUN = "--dry-run"
PROCESSES = "processes"  # what it prints without a word behind it
KINDS = (*kubernetes.KINDS, PROCESSES)


class _Parser(argparse.ArgumentParser):
    """Knows options of other launchers, too, and says what takes their place."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        say(f"error: {other_launchers.answer(message)}")
        sys.exit(_USAGE)


def new_parser(kind: type[argparse.ArgumentParser] = _Parser) -> argparse.ArgumentParser:
    """A parser of bpslaunch's arguments, of this class."""
    parser = kind(
        prog="bpslaunch",
        usage="bpslaunch -np N [--servers K] [-H host1:4,...] [options] [--] command",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_job_arguments(parser.add_argument_group("the job"))
    _add_output_arguments(parser.add_argument_group("output"))
    _add_elastic_arguments(parser.add_argument_group("elastic jobs"))
    _add_kubernetes_arguments(parser.add_argument_group("Kubernetes"))
    add_remote_arguments(parser)
    _add_other_arguments(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what each worker runs")
    return parser


def _add_job_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "-np",
        "--np",
        "--workers",
        dest="workers",
        type=option_types.positive,
        metavar="N",
        help="number of workers (default: as many as -H takes)",
    )
    group.add_argument(
        "--servers",
        type=option_types.not_negative,
        metavar="K",
        help="number of server processes (default: 0, and every worker hosts a server)",
    )
    group.add_argument(
        "--server-restarts",
        type=option_types.not_negative,
        default=0,
        metavar="N",
        help="how often servers that fail are started again, in all, while the job goes on with "
        "the others (default: 0; an elastic job starts them again anyway)",
    )
    add_host_arguments(group)
    group.add_argument(
        "--server-hosts", metavar="HOST,...", help="hosts for the servers (default: those of -H)"
    )
    group.add_argument(
        "--scheduler-host",
        metavar="ADDRESS",
        help="address of this machine at which all hosts reach it (default: found by routing)",
    )
    group.add_argument(
        "--config",
        metavar="FILE",
        help="read options from this YAML file; those of the command line win",
    )
    group.add_argument(
        "--env",
        dest="variables",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="a variable for all processes, remote ones too; may be repeated",
    )
    group.add_argument(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        metavar="MODULE",
        help="the command is this module of Python, with the arguments that follow",
    )
    add_ports_argument(group)
    group.add_argument(
        "--network-interface",
        metavar="NAME",
        help="all processes use this interface's address, such as eth0 (sets DMLC_INTERFACE)",
    )


def add_host_arguments(group: argparse._ArgumentGroup) -> None:
    """Adds the options that say which hosts there are; see `hosts.given_hosts`."""
    group.add_argument(
        "-H", "--hosts", metavar="HOST[:N],...", help="hosts, and how many workers each takes"
    )
    group.add_argument(
        "--hostfile",
        metavar="FILE",
        help='a file instead of -H, with a line for each host: "host", "host:4" or "host slots=4"',
    )


def add_ports_argument(group: argparse._ArgumentGroup) -> None:
    """Adds --ports, for a firewall between the hosts."""
    group.add_argument(
        "--ports",
        type=option_types.ports,
        metavar="FIRST-LAST",
        help="every process listens at free ones of these ports, such as 20000-20063 (sets "
        "BYTEPS_PORTS)",
    )


def add_remote_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say how to reach remote hosts."""
    ssh = parser.add_argument_group("remote hosts")
    ssh.add_argument(
        "--remote-shell",
        choices=remote_shells.NAMES,
        help="what starts processes there (default: srun inside an allocation of Slurm, else ssh)",
    )
    ssh.add_argument("--ssh-port", type=option_types.positive, metavar="PORT")
    ssh.add_argument("--ssh-identity", metavar="FILE", help="private key")
    ssh.add_argument(
        "--ssh-option",
        dest="ssh_options",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="passed on with -o; may be repeated",
    )


def _add_output_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--log-dir",
        metavar="DIR",
        help="also write the output of each process to a file in a new folder there, such as "
        "DIR/run-0001/worker-0.log; DIR/latest leads to the last one",
    )
    group.add_argument(
        "--timeline",
        metavar="FILE",
        help="record where the time of each step goes, in the folder FILE.d, and merge that into "
        "FILE when the job ends (docs/timeline.md)",
    )
    group.add_argument(
        "--metrics-port",
        type=option_types.port,
        metavar="PORT",
        help="every process serves metrics for Prometheus from this port on (sets "
        "BYTEPS_METRICS_PORT)",
    )
    group.add_argument(
        "--show",
        metavar="RANKS",
        help='print the output of these workers only, such as "0" or "0,4-7" (default: all)',
    )
    group.add_argument(
        "--timestamps", action="store_true", help="begin each line that is printed with the time"
    )


def _add_kubernetes_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        DRY_RUN,
        choices=KINDS,
        help="start nothing, but print which process would be started where; with kubernetes, "
        "jobset or trainjob behind it the job's manifests for `kubectl apply -f -`: Indexed Jobs, "
        "a JobSet, or a TrainJob of Kubeflow Trainer",
    )
    group.add_argument("--image", help="the container image, with tf_byteps and the program")
    group.add_argument(
        "--server-image",
        metavar="IMAGE",
        help="another image for servers (default: that of --image)",
    )
    group.add_argument("--name", default="train", help="name of the job (default: train)")
    group.add_argument(
        "--resources",
        metavar="NAME=QUANTITY,...",
        help="of each worker's pod, such as cpu=4,memory=8Gi,nvidia.com/gpu=1",
    )


def _add_elastic_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--min-np",
        dest="min_workers",
        type=option_types.positive,
        metavar="N",
        help="least number of workers; with fewer the job waits (default: -np, or 1)",
    )
    group.add_argument(
        "--max-np",
        dest="max_workers",
        type=option_types.positive,
        metavar="N",
        help="start no more workers (default: as many as the hosts take)",
    )
    group.add_argument(
        "--host-discovery-script",
        dest="host_script",
        metavar="FILE",
        help='run every second; prints the hosts to use, in lines "host" or "host:workers"',
    )
    group.add_argument(
        "--slots-per-host",
        type=option_types.positive,
        default=1,
        metavar="N",
        help="workers of a host that the script prints without a number (default: 1)",
    )
    group.add_argument(
        "--elastic-timeout",
        type=option_types.seconds,
        metavar="SECONDS",
        help="how long to wait for --min-np workers (default: 600)",
    )
    group.add_argument(
        "--reset-limit",
        type=option_types.not_negative,
        metavar="N",
        help="end the job when its workers have changed more than N times (default: never)",
    )
    group.add_argument(
        "--host-failures",
        type=option_types.not_negative,
        default=3,
        metavar="N",
        help="stop using a host on which N processes have failed within 10 minutes; 0: never "
        "stop (default: 3)",
    )


def _add_other_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--grace",
        type=option_types.seconds,
        default=10.0,
        metavar="SECONDS",
        help="how long processes have to end before they are killed (default: 10)",
    )
    parser.add_argument(
        "--stall-shutdown-seconds",
        type=option_types.positive,
        metavar="SECONDS",
        help="end the job when a tensor waits longer for other workers (default: keep waiting)",
    )
    parser.add_argument(
        "--tls",
        action="store_true",
        help="encrypt all that the job's processes send to each other (sets BYTEPS_TLS=1)",
    )
    parser.add_argument(
        "--compile-cache",
        metavar="DIR",
        help="keep what XLA compiles for GPUs in this folder on each host, so that the next start "
        "takes it from there",
    )
    parser.add_argument("--version", action="version", version=f"tf_byteps {__version__}")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--verbose", action="store_true", help="say what is started")
    amount.add_argument(
        "--quiet", action="store_true", help="print only one line at the end if all goes well"
    )
