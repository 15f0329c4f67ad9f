"""bpslaunch: from options to a job that runs."""

import argparse
import contextlib
import dataclasses
import logging
import os
import re
import secrets
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from tf_byteps.config import Config
from tf_byteps.errors import BytePSError, ConfigError
from tf_byteps.gpus import devices_in_words
from tf_byteps.launch import dry_run, kubernetes, ports
from tf_byteps.launch.allocation import read_allocation
from tf_byteps.launch.arguments import new_parser, read
from tf_byteps.launch.discovery import FixedHosts, HostScript
from tf_byteps.launch.elastic import ElasticJob
from tf_byteps.launch.hosts import Host, address_for, given_hosts, is_local
from tf_byteps.launch.job import Job
from tf_byteps.launch.launcher import Launcher
from tf_byteps.launch.log_folder import LogFolder
from tf_byteps.launch.output import Choice, Screen, read_ranks
from tf_byteps.launch.plan import ElasticPlan, Plan, Task, tasks_of_one_role
from tf_byteps.launch.remote_shells import Ssh
from tf_byteps.launch.settings import (
    new_launcher,
    read_setting,
    take_secret,
    timeline_folder,
    variables_of,
)
from tf_byteps.rendezvous.host import interface_address
from tf_byteps.timeline import report as timeline_report

_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs bpslaunch; returns its exit code."""
    logging.basicConfig(format="bpslaunch: %(message)s")
    try:
        options = read(arguments)
        return _run(options, dict(os.environ, PYTHONUNBUFFERED="1"))
    except BytePSError as error:
        print(f"bpslaunch: {error}", file=sys.stderr)
        return _USAGE if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:  # before or after the job's own handlers
        return 128 + signal.SIGINT


def _run(options: argparse.Namespace, environment: dict[str, str]) -> int:
    most = options.max_workers or options.workers
    if options.min_workers and most and options.min_workers > most:
        _refuse(f"--min-np {options.min_workers} is more than the {most} workers at most")
    if options.dry_run in kubernetes.KINDS:
        _require_command(options)
        return _print_manifests(options, environment)
    if options.min_workers or options.host_script:
        _require_command(options)
        code = _run_elastic_job(options, environment)
        return code if options.dry_run else _merge_timeline(options.timeline, code)
    if not (options.workers or options.hosts or options.hostfile):
        if environment.get("DMLC_ROLE"):
            return _run_one_role(options, environment)
        if read_allocation(environment) is None:
            behind = set(options.command) & {"-np", "--np", "--workers", "-H", "--hosts"}
            hint = f"; {min(behind)} behind the command is the program's" if behind else ""
            _refuse(f"-np is missing: how many workers? (or set DMLC_ROLE){hint}")
    _require_command(options)
    code = _run_job(options, environment)
    return code if options.dry_run else _merge_timeline(options.timeline, code)


def _merge_timeline(file: str | None, code: int) -> int:
    """Merges and explains what was recorded, if it can be; returns the job's exit code."""
    folder = timeline_folder(file) if file else ""
    if not (file and os.path.isdir(folder)):
        return code
    if not os.listdir(folder):
        _say(f"WARNING no timeline: no process of the job wrote one into {folder}")
        with contextlib.suppress(OSError):
            os.rmdir(folder)
        return code
    with contextlib.redirect_stdout(sys.stderr):  # standard output is the workers'
        if timeline_report.main([folder, "--out", file, "--explain"]):
            _say(f"WARNING the timelines in {folder} have not been merged")
    return code


def _refuse(message: str) -> NoReturn:
    """Ends as argparse does when the command line is wrong."""
    new_parser().error(message)


def _print_manifests(options: argparse.Namespace, environment: dict[str, str]) -> int:
    if options.hosts or options.hostfile or options.host_script:
        _refuse("--dry-run: Kubernetes chooses the hosts")
    workers = options.max_workers or options.workers
    if not (workers and options.image):
        _refuse("--dry-run needs -np and --image")
    elastic = bool(options.min_workers)
    if elastic and options.dry_run not in kubernetes.ELASTIC_KINDS:
        _refuse(f"--dry-run {options.dry_run}: its number of workers is fixed: leave --min-np")
    if options.server_image and not (options.servers or elastic):
        _refuse("--server-image needs --servers: without, every worker hosts a server")
    variables = variables_of(options, environment)
    job = kubernetes.PodJob(
        options.name,
        options.image,
        workers,
        options.servers or 0,
        options.command,
        take_secret(environment),
        {**variables, **_limits(options)} if elastic else variables,
        kubernetes.read_resources(options.resources) if options.resources else {},
        options.server_image,
        options.min_workers,
    )
    print(kubernetes.to_yaml(job.manifests(options.dry_run)), end="")
    return 0


def _limits(options: argparse.Namespace) -> dict[str, str]:
    """What tells the processes of an elastic job about it."""
    limits = {
        "BYTEPS_MIN_WORKERS": options.min_workers or options.workers or 1,
        "BYTEPS_MAX_WORKERS": options.max_workers,
        "BYTEPS_ELASTIC_TIMEOUT": options.elastic_timeout,
        "BYTEPS_RESET_LIMIT": options.reset_limit,
    }
    return {name: str(value) for name, value in limits.items() if value is not None}


def _run_job(options: argparse.Namespace, environment: dict[str, str]) -> int:
    plan = _plan(options, environment)
    launcher = new_launcher(options, environment, plan.needs_scheduler)
    if plan.needs_scheduler:
        ports.check(plan, launcher.environment)
    settings = {
        "server_failover": read_setting(launcher.environment, "server_failover"),
        "server_restarts": options.server_restarts,
        "choice": _choice(options, environment),
        "screen": Screen(timestamps=options.timestamps),
    }
    address, port = "", 0
    if plan.needs_scheduler:
        address = _scheduler_address(options, launcher, plan.host_names())
    if options.dry_run:
        alone = [] if not plan.needs_scheduler else [plan.scheduler_task(address)]
        tasks = plan.server_tasks(address, plan.scheduler_port)
        tasks = alone + tasks + plan.worker_tasks(address, plan.scheduler_port)
        return _print_plan(_counted(plan.workers, "worker"), plan, launcher, tasks)
    with Job(launcher, verbose=options.verbose, **settings) as job:
        if not options.quiet:
            job.say(_headline(_counted(plan.workers, "worker"), plan, launcher))
        backend = launcher.environment.get("KERAS_BACKEND", "tensorflow")
        if backend != "tensorflow":
            job.say(
                f"WARNING KERAS_BACKEND is {backend}, but tf_byteps trains with tensorflow only"
            )
        if plan.needs_scheduler:
            task = plan.scheduler_task(address, job.report_descriptor, stays=True)
            port = job.start_scheduler(task)
        servers = plan.server_tasks(address, port, stay=True)
        job.start_all(servers + plan.worker_tasks(address, port))
        return job.run()


def _run_elastic_job(options: argparse.Namespace, environment: dict[str, str]) -> int:
    discovery = _discovery(options, environment)
    hosts = discovery.first() if isinstance(discovery, HostScript) else discovery.poll()
    limits = _limits(options)
    plan = ElasticPlan(
        scheduler_port=ports.scheduler_port(environment, variables_of(options, environment)),
        workers=0,
        servers=_number_of_servers(options, environment),
        hosts=(),
        server_hosts=tuple(_server_hosts(options, environment, hosts)),
        job_id=secrets.token_hex(8),
        command=tuple(options.command),
        limits=limits,
    )
    launcher = new_launcher(options, environment, True)
    most, failures = options.max_workers, options.host_failures
    slots = sum(host.slots for host in hosts)
    first = dataclasses.replace(plan, workers=min(slots, most or slots), hosts=tuple(hosts))
    ports.check(first, launcher.environment)
    screen = Screen(timestamps=options.timestamps)
    choice = _choice(options, environment)
    settings = {"verbose": options.verbose, "choice": choice, "screen": screen}
    names = [*(host.name for host in hosts), *plan.server_hosts]
    address = _scheduler_address(options, launcher, names)
    least = int(limits["BYTEPS_MIN_WORKERS"])
    workers = f"{least} to {most} workers" if most else f"at least {_counted(least, 'worker')}"
    if options.dry_run:
        port = plan.scheduler_port
        tasks = [plan.scheduler_task(address), *plan.server_tasks(address, port)]
        places = [(host, slot) for host in hosts for slot in range(host.slots)][:most]
        for number, (host, slot) in enumerate(places):
            tasks.append(plan.worker_task(address, port, number, host, slot))
        return _print_plan(workers, plan, launcher, tasks)
    with ElasticJob(launcher, plan, discovery, most, failures, **settings) as job:
        if not options.quiet:
            job.say(_headline(workers, plan, launcher, [host.name for host in hosts]))
        is_alone = not options.scheduler_host and all(map(is_local, names))
        job.begin(address, is_alone)
        return job.run()


def _scheduler_address(
    options: argparse.Namespace, launcher: Launcher, names: Sequence[str]
) -> str:
    """Where processes on these hosts reach the scheduler, which runs on this machine."""
    interface = read_setting(launcher.environment, "interface")
    if interface and not (options.scheduler_host or all(map(is_local, names))):
        return interface_address(interface)
    return options.scheduler_host or address_for(names)


def _discovery(
    options: argparse.Namespace, environment: Mapping[str, str]
) -> FixedHosts | HostScript:
    most = options.max_workers or options.workers
    if not options.host_script:
        hosts = _worker_hosts(options, environment, most)
        return FixedHosts(hosts or [Host("localhost", most or options.min_workers)])
    if options.hosts or options.hostfile:
        given = "-H" if options.hosts else "--hostfile"
        raise ConfigError(
            f"{given} and --host-discovery-script both say which hosts to use: give one of them"
        )

    return HostScript(options.host_script, options.slots_per_host, _say)


def _say(text: str) -> None:
    print(f"bpslaunch: {text}", file=sys.stderr)


def _choice(options: argparse.Namespace, environment: Mapping[str, str]) -> Choice:
    ranks = None if options.show is None else read_ranks(options.show)
    if options.log_dir is None:
        return Choice(None, ranks)
    if options.dry_run:
        return Choice(None, ranks)
    return Choice(LogFolder(options.log_dir, options.command, environment), ranks)


def _print_plan(workers: str, plan: Plan, launcher: Launcher, tasks: Sequence[Task]) -> int:
    """For --dry-run."""
    hosts = [task.host for task in tasks if task.role == "worker"]
    dry_run.check_program(plan.command, hosts, launcher.environment)
    headline = _headline(workers, plan, launcher, [*hosts, *plan.server_hosts])
    return _print(dry_run.script(headline, plan, tasks, launcher.shell_name))


def _print(text: str) -> int:
    print(text, end="")
    return 0


def _headline(workers: str, plan: Plan, launcher: Launcher, hosts: list[str] | None = None) -> str:
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
    servers = _counted(plan.servers, "server") if plan.servers else "servers inside the workers"
    if not plan.needs_scheduler:
        return f"{workers}{devices}, alone"
    return f"{workers} on {_counted(len(names), 'host')}{devices}, {servers}, TLS {tls}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _worker_hosts(
    options: argparse.Namespace, environment: Mapping[str, str], workers: int | None
) -> list[Host] | None:
    """Those that are named, or those of Slurm's allocation; None: this machine."""
    given = given_hosts(options.hosts, options.hostfile)
    allocation = read_allocation(environment)
    return given if given or not allocation else allocation.worker_hosts(workers)


def _plan(options: argparse.Namespace, environment: Mapping[str, str]) -> Plan:
    hosts = _worker_hosts(options, environment, options.workers) or []
    workers = options.workers or sum(host.slots for host in hosts)
    hosts = hosts or [Host("localhost", workers)]
    return Plan(
        scheduler_port=ports.scheduler_port(environment, variables_of(options, environment)),
        workers=workers,
        servers=_number_of_servers(options, environment),
        hosts=tuple(hosts),
        server_hosts=tuple(_server_hosts(options, environment, hosts)),
        job_id=secrets.token_hex(8),
        command=tuple(options.command),
    )


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


def _run_one_role(options: argparse.Namespace, environment: dict[str, str]) -> int:
    environment.update(variables_of(options, environment))
    config = Config.from_environment(environment)
    if config.role == "worker":
        _require_command(options)
    launcher = Launcher(environment, {}, Ssh(), options.grace)
    tasks = tasks_of_one_role(config, tuple(options.command))
    if options.dry_run:
        return _print(dry_run.script_of_tasks(tasks, launcher.shell_name))
    screen = Screen(timestamps=options.timestamps)
    choice = _choice(options, environment)
    with Job(launcher, screen, verbose=options.verbose, choice=choice) as job:
        job.start_all(tasks)
        return job.run()


def _require_command(options: argparse.Namespace) -> None:
    if not options.command:
        _refuse("the command that the workers run is missing")
    if _reads_program(options.command):
        _refuse(
            f"{' '.join(options.command)} reads its program from standard input, which workers do "
            f"not have: put it into a file"
        )


def _reads_program(command: Sequence[str]) -> bool:
    """Whether this is Python without a program of its own."""
    if not re.fullmatch(r"python[\d.]*", os.path.basename(command[0])):
        return False
    words = iter(command[1:])
    for word in words:
        if word in ("-W", "-X"):
            next(words, None)
        elif word == "-":
            return True
        elif re.match(r"-[a-zA-Z]*[cmVh]|--|[^-]", word):
            return False
    return True


if __name__ == "__main__":
    sys.exit(main())
