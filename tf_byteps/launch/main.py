"""The command line of bpslaunch."""

import argparse
import logging
import math
import os
import secrets
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tf_byteps import __version__
from tf_byteps.config import OPTIONS, Config
from tf_byteps.errors import BytePSError, ConfigError
from tf_byteps.launch import compile_cache, kubernetes
from tf_byteps.launch.discovery import FixedHosts, HostScript
from tf_byteps.launch.elastic import ElasticJob
from tf_byteps.launch.hosts import (
    Host,
    Ssh,
    address_for,
    is_local,
    parse_hosts,
    passed_environment,
    read_hostfile,
)
from tf_byteps.launch.output import Choice, read_ranks
from tf_byteps.launch.plan import TOPOLOGY, ElasticPlan, Plan, tasks_of_one_role
from tf_byteps.launch.running import Job, Launcher
from tf_byteps.rendezvous.secret import MIN_BYTES, new_secret, read_secret_file

_DESCRIPTION = """\
Starts a training job: a scheduler, servers, and the workers that run the command.

    bpslaunch -np 2 --servers 1 python train.py
    bpslaunch -np 8 -H host1:4,host2:4 --servers 2 --server-hosts host3,host4 python train.py
    bpslaunch --min-np 2 --max-np 8 --host-discovery-script hosts.sh python train.py
    bpslaunch -np 4 --dry-run kubernetes --image example/train:1 python train.py

Without -np and -H, and with DMLC_ROLE set, it starts that one role of a job whose other processes
are started by hand: a worker's command BYTEPS_LOCAL_SIZE times, or one server, or the scheduler.
All processes end together; the exit code is that of the first one that failed. With --min-np or
--host-discovery-script the job is elastic: workers that fail are started again, and the others go
on meanwhile (docs/elastic.md).
"""
_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs bpslaunch; returns its exit code."""
    logging.basicConfig(format="bpslaunch: %(message)s")
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command[:1] == ["--"]:
        del options.command[0]
    if options.module:
        options.command = [sys.executable, "-m", *options.module]
    environment = dict(os.environ, PYTHONUNBUFFERED="1")
    most = options.max_workers or options.workers
    if options.min_workers and most and options.min_workers > most:
        parser.error(f"--min-np {options.min_workers} is more than the {most} workers at most")
    try:
        if options.dry_run:
            _require_command(parser, options)
            return _print_manifests(parser, options, environment)
        if options.min_workers or options.host_script:
            _require_command(parser, options)
            return _run_elastic_job(options, environment)
        if not (options.workers or options.hosts or options.hostfile):
            if not environment.get("DMLC_ROLE"):
                parser.error("-np is missing: how many workers? (or set DMLC_ROLE)")
            return _run_one_role(parser, options, environment)
        _require_command(parser, options)
        return _run_job(options, environment)
    except BytePSError as error:
        print(f"bpslaunch: {error}", file=sys.stderr)
        return _USAGE if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:  # before or after the job's own handlers
        return 128 + signal.SIGINT
    except BrokenPipeError:  # as in `bpslaunch ... | head`
        # Nor can the interpreter flush what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def _print_manifests(
    parser: argparse.ArgumentParser, options: argparse.Namespace, environment: dict[str, str]
) -> int:
    elsewhere = options.hosts or options.hostfile or options.host_script or options.min_workers
    if elsewhere:
        parser.error("--dry-run: Kubernetes chooses the hosts, and the number of workers is fixed")
    if not (options.workers and options.image):
        parser.error("--dry-run needs -np and --image")
    variables = _settings(options, environment)
    job = kubernetes.PodJob(
        options.name,
        options.image,
        options.workers,
        options.servers or 0,
        options.command,
        _take_secret(environment),
        variables,
        kubernetes.read_resources(options.resources) if options.resources else {},
    )
    print(kubernetes.to_yaml(job.manifests(options.dry_run)), end="")
    return 0


def _run_job(options: argparse.Namespace, environment: dict[str, str]) -> int:
    plan = _plan(options)
    launcher = _launcher(options, environment, plan.needs_scheduler)
    settings = {
        "server_failover": _reads(launcher.environment, "server_failover"),
        "server_restarts": options.server_restarts,
        "choice": _choice(options),
    }
    with Job(launcher, verbose=options.verbose, **settings) as job:
        if not options.quiet:
            job.say(_headline(_counted(plan.workers, "worker"), plan, launcher))
        address, port = "", 0
        if plan.needs_scheduler:
            address = options.scheduler_host or address_for(plan.host_names())
            port = job.start_scheduler(plan.scheduler_task(address, job.report_descriptor))
        job.start_all(plan.server_tasks(address, port) + plan.worker_tasks(address, port))
        return job.run()


def _run_elastic_job(options: argparse.Namespace, environment: dict[str, str]) -> int:
    discovery = _discovery(options)
    hosts = discovery.first() if isinstance(discovery, HostScript) else discovery.poll()
    limits = {
        "BYTEPS_MIN_WORKERS": options.min_workers or options.workers or 1,
        "BYTEPS_MAX_WORKERS": options.max_workers,
        "BYTEPS_ELASTIC_TIMEOUT": options.elastic_timeout,
        "BYTEPS_RESET_LIMIT": options.reset_limit,
    }
    plan = ElasticPlan(
        workers=0,
        servers=_number_of_servers(options),
        hosts=(),
        server_hosts=tuple(_server_hosts(options, hosts)),
        job_id=secrets.token_hex(8),
        command=tuple(options.command),
        limits={name: str(value) for name, value in limits.items() if value is not None},
    )
    launcher = _launcher(options, environment, True)
    most, failures = options.max_workers, options.host_failures
    settings = {"verbose": options.verbose, "choice": _choice(options)}
    with ElasticJob(launcher, plan, discovery, most, failures, **settings) as job:
        least = limits["BYTEPS_MIN_WORKERS"]
        workers = f"{least} to {most} workers" if most else f"at least {_counted(least, 'worker')}"
        if not options.quiet:
            job.say(_headline(workers, plan, launcher, [host.name for host in hosts]))
        names = [*(host.name for host in hosts), *plan.server_hosts]
        is_alone = not options.scheduler_host and all(map(is_local, names))
        job.begin(options.scheduler_host or address_for(names), is_alone)
        return job.run()


def _discovery(options: argparse.Namespace) -> FixedHosts | HostScript:
    most = options.max_workers or options.workers or options.min_workers
    if not options.host_script:
        return FixedHosts(_hosts(options) or [Host("localhost", most)])
    if options.hosts or options.hostfile:
        given = "-H" if options.hosts else "--hostfile"
        raise ConfigError(
            f"{given} and --host-discovery-script both say which hosts to use: leave one"
        )

    def say(text: str) -> None:
        print(f"bpslaunch: {text}", file=sys.stderr)

    return HostScript(options.host_script, options.slots_per_host, say)


def _launcher(
    options: argparse.Namespace, environment: dict[str, str], needs_secret: bool
) -> Launcher:
    given = _settings(options, environment)
    environment = {name: value for name, value in environment.items() if name not in TOPOLOGY}
    environment.update(given)
    secret = _take_secret(environment) if needs_secret else None
    ssh = Ssh(options.ssh_port, options.ssh_identity, tuple(options.ssh_options))
    remote = passed_environment(environment, given)
    return Launcher(environment, remote, ssh, options.grace, secret)


def _settings(options: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that options stand for: --env, and those with a name of their own."""
    variables = dict(_read_variable(text, environment) for text in options.variables)
    if options.stall_shutdown_seconds:
        variables["BYTEPS_STALL_SHUTDOWN_SECONDS"] = str(options.stall_shutdown_seconds)
    if options.metrics_port:
        variables["BYTEPS_METRICS_PORT"] = options.metrics_port
    if options.tls:
        variables["BYTEPS_TLS"] = "1"
    if options.compile_cache:
        flags = variables.get("TF_XLA_FLAGS", environment.get("TF_XLA_FLAGS", ""))
        variables["TF_XLA_FLAGS"] = compile_cache.flags(flags, options.compile_cache)
    return variables


def _reads(environment: Mapping[str, str], name: str) -> Any:
    """What the processes are told of a setting."""
    described = OPTIONS[name]
    given = environment.get(described.variable, "").strip()
    return described.read(given) if given else getattr(Config(), name)


def _choice(options: argparse.Namespace) -> Choice:
    ranks = None if options.show is None else read_ranks(options.show)
    return Choice(options.log_dir, ranks)


def _headline(workers: str, plan: Plan, launcher: Launcher, hosts: list[str] | None = None) -> str:
    """What is about to start, in a line.

    Args:
        workers: how many, in words.
        plan: a `Plan`.
        launcher: a `Launcher`.
        hosts: names of the hosts that are known. Default: those of the plan.
    """
    number = len(set(hosts or plan.host_names()))
    tls = "on" if _reads(launcher.environment, "tls") else "off"
    servers = _counted(plan.servers, "server") if plan.servers else "servers inside the workers"
    if not plan.needs_scheduler:
        return f"{workers}, alone"
    return f"{workers} on {_counted(number, 'host')}, {servers}, TLS {tls}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _take_secret(environment: dict[str, str]) -> str:
    """The job's secret: what the environment gives, or a new one. Removes it from there."""
    secret = environment.pop("BYTEPS_JOB_SECRET", "").strip()
    path = environment.pop("BYTEPS_JOB_SECRET_FILE", "").strip()
    if secret and path:
        raise ConfigError("BYTEPS_JOB_SECRET and BYTEPS_JOB_SECRET_FILE are set: unset one of them")
    if path:
        return read_secret_file(path)
    if secret and len(secret.encode()) < MIN_BYTES:
        raise ConfigError(
            f"BYTEPS_JOB_SECRET has {len(secret.encode())} bytes, but must have at least "
            f"{MIN_BYTES}: unset it, and the job gets a secret of its own"
        )
    return secret or new_secret()


def _plan(options: argparse.Namespace) -> Plan:
    hosts = _hosts(options)
    workers = options.workers or sum(host.slots for host in hosts)
    hosts = hosts or [Host("localhost", workers)]
    return Plan(
        workers=workers,
        servers=_number_of_servers(options),
        hosts=tuple(hosts),
        server_hosts=tuple(_server_hosts(options, hosts)),
        job_id=secrets.token_hex(8),
        command=tuple(options.command),
    )


def _hosts(options: argparse.Namespace) -> list[Host] | None:
    """What -H or --hostfile says, or None."""
    if options.hosts and options.hostfile:
        raise ConfigError("-H and --hostfile both say which hosts to use: leave one")
    if options.hostfile:
        return read_hostfile(options.hostfile)
    return parse_hosts(options.hosts) if options.hosts else None


def _number_of_servers(options: argparse.Namespace) -> int:
    if options.servers is not None:
        return options.servers
    return len(options.server_hosts.split(",")) if options.server_hosts else 0


def _server_hosts(options: argparse.Namespace, hosts: Sequence[Host]) -> list[str]:
    if not _number_of_servers(options):
        return []
    if options.server_hosts:
        return [name.strip() for name in options.server_hosts.split(",")]
    return [host.name for host in hosts]


def _run_one_role(
    parser: argparse.ArgumentParser, options: argparse.Namespace, environment: dict[str, str]
) -> int:
    environment.update(_settings(options, environment))
    config = Config.from_environment(environment)
    if config.role == "worker":
        _require_command(parser, options)
    with Job(Launcher(environment, {}, Ssh(), options.grace), verbose=options.verbose) as job:
        job.start_all(tasks_of_one_role(config, tuple(options.command)))
        return job.run()


def _require_command(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if not options.command:
        parser.error("the command that the workers run is missing")


def _read_variable(text: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """A pair of name and value from "NAME=VALUE", or from "NAME" and this environment."""
    name, has_value, value = text.partition("=")
    if has_value and name == "BYTEPS_JOB_SECRET":
        raise ConfigError(
            "--env BYTEPS_JOB_SECRET=...: everybody on this machine can see a command line; set "
            "the variable in the environment of bpslaunch, or BYTEPS_JOB_SECRET_FILE"
        )
    if has_value:
        return name, value
    if name not in environment:
        raise ConfigError(f"--env {name}: there is no such variable here; give a value, {name}=...")
    return name, environment[name]


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _positive(text: str) -> int:
    number = _whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def _port(text: str) -> str:
    if not 1 <= _whole(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port: 1 to 65535")
    return text


def _not_negative(text: str) -> int:
    number = _whole(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return number


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not (math.isfinite(number) and number >= 0):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds from 0")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bpslaunch",
        usage="bpslaunch -np N [--servers K] [-H host1:4,host2:4] [options] [--] command ...",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    job = parser.add_argument_group("the job")
    job.add_argument(
        "-np", "--workers", type=_positive, metavar="N", help="workers (default: all that -H takes)"
    )
    job.add_argument(
        "--servers",
        type=_not_negative,
        metavar="K",
        help="server processes; 0, the default, makes every worker host a server",
    )
    job.add_argument(
        "--server-restarts",
        type=_not_negative,
        default=0,
        metavar="N",
        help="how often servers that fail are started again, in all, while the job goes on with "
        "the others (default: 0; an elastic job starts them again anyway)",
    )
    job.add_argument(
        "-H", "--hosts", metavar="HOST[:N],...", help="hosts, and how many workers each takes"
    )
    job.add_argument(
        "--hostfile",
        metavar="FILE",
        help='a file instead of -H, with a line for each host: "host", "host:4" or "host slots=4"',
    )
    job.add_argument(
        "--server-hosts", metavar="HOST,...", help="hosts for the servers (default: those of -H)"
    )
    job.add_argument(
        "--scheduler-host",
        metavar="ADDRESS",
        help="address of this machine at which all hosts reach it (default: found by routing)",
    )
    job.add_argument(
        "--env",
        dest="variables",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="a variable for all processes, remote ones too; may be repeated",
    )
    job.add_argument(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        metavar="MODULE",
        help="the command is this module of Python, with the arguments that follow",
    )
    _add_output_arguments(parser.add_argument_group("output"))
    _add_elastic_arguments(parser.add_argument_group("elastic jobs"))
    _add_kubernetes_arguments(parser.add_argument_group("Kubernetes"))
    ssh = parser.add_argument_group("remote hosts")
    ssh.add_argument("--ssh-port", type=_positive, metavar="PORT")
    ssh.add_argument("--ssh-identity", metavar="FILE", help="private key")
    ssh.add_argument(
        "--ssh-option",
        dest="ssh_options",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="passed on with -o; may be repeated",
    )
    parser.add_argument(
        "--grace",
        type=_seconds,
        default=10.0,
        metavar="SECONDS",
        help="from asking a process to end to killing it (default: 10)",
    )
    parser.add_argument(
        "--stall-shutdown-seconds",
        type=_positive,
        metavar="SECONDS",
        help="end the job when a tensor waits so long for other workers (default: wait on)",
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
        "--quiet",
        action="store_true",
        help="when all goes well, say no more than a line at the end",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what each worker runs")
    return parser


def _add_output_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--log-dir",
        metavar="DIR",
        help="also write the output of each process to a file there, such as worker-0.log",
    )
    group.add_argument(
        "--metrics-port",
        type=_port,
        metavar="PORT",
        help="every process serves metrics for Prometheus from this port on (sets "
        "BYTEPS_METRICS_PORT)",
    )
    group.add_argument(
        "--show",
        metavar="RANKS",
        help='print the output of these workers only, such as "0" or "0,4-7" (default: all)',
    )


def _add_kubernetes_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--dry-run",
        choices=kubernetes.KINDS,
        help="start nothing, but print the job's manifests for `kubectl apply -f -`: Indexed Jobs, "
        "a JobSet, or a TrainJob of Kubeflow Trainer",
    )
    group.add_argument("--image", help="the container image, with tf_byteps and the program")
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
        type=_positive,
        metavar="N",
        help="go on with so few workers; below, wait (default: -np, or 1)",
    )
    group.add_argument(
        "--max-np",
        dest="max_workers",
        type=_positive,
        metavar="N",
        help="start no more workers (default: as many as the hosts take)",
    )
    group.add_argument(
        "--host-discovery-script",
        dest="host_script",
        metavar="FILE",
        help='is run every second and prints the hosts to use: lines "host" or "host:workers"',
    )
    group.add_argument(
        "--slots-per-host",
        type=_positive,
        default=1,
        metavar="N",
        help="workers of a host that is printed without a number (default: 1)",
    )
    group.add_argument(
        "--elastic-timeout",
        type=_seconds,
        metavar="SECONDS",
        help="how long to wait for --min-np workers (default: 600)",
    )
    group.add_argument(
        "--reset-limit",
        type=_not_negative,
        metavar="N",
        help="end the job when its workers have changed more often (default: never)",
    )
    group.add_argument(
        "--host-failures",
        type=_not_negative,
        default=3,
        metavar="N",
        help="use a host no more when so many of its processes have failed in 10 minutes; 0: "
        "however many (default: 3)",
    )


if __name__ == "__main__":
    sys.exit(main())
