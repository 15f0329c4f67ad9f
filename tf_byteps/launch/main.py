"""bpslaunch: from options to a job that runs."""

import argparse
import contextlib
import dataclasses
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence

from tf_byteps.config import Config
from tf_byteps.errors import BytePSError, ConfigError
from tf_byteps.launch import dry_run, kubernetes, ports
from tf_byteps.launch.allocation import read_allocation
from tf_byteps.launch.arguments import read, refuse
from tf_byteps.launch.commands import check_program, require_command
from tf_byteps.launch.discovery import HostScript
from tf_byteps.launch.elastic import ElasticJob
from tf_byteps.launch.headline import counted, headline
from tf_byteps.launch.hosts import is_local
from tf_byteps.launch.job import Job
from tf_byteps.launch.launcher import Launcher
from tf_byteps.launch.log_folder import LogFolder
from tf_byteps.launch.output import Choice, Screen, read_ranks, say
from tf_byteps.launch.plan import Plan, Task, tasks_of_one_role
from tf_byteps.launch.planning import (
    limits_of,
    new_discovery,
    new_elastic_plan,
    new_plan,
    scheduler_address,
)
from tf_byteps.launch.remote_shells import Ssh
from tf_byteps.launch.settings import (
    new_launcher,
    read_setting,
    take_secret,
    timeline_folder,
    variables_of,
)
from tf_byteps.timeline import report as timeline_report

_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs bpslaunch; returns its exit code."""
    logging.basicConfig(format="bpslaunch: %(message)s")
    try:
        options = read(arguments)
        return _run(options, dict(os.environ, PYTHONUNBUFFERED="1"))
    except BytePSError as error:
        say(str(error))
        return _USAGE if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:  # before or after the job's own handlers
        return 128 + signal.SIGINT


def _run(options: argparse.Namespace, environment: dict[str, str]) -> int:
    most = options.max_workers or options.workers
    if options.min_workers and most and options.min_workers > most:
        refuse(f"--min-np {options.min_workers} is more than the {most} workers at most")
    if options.dry_run in kubernetes.KINDS:
        require_command(options)
        return _print_manifests(options, environment)
    if options.min_workers or options.host_script:
        require_command(options)
        code = _run_elastic_job(options, environment)
        return code if options.dry_run else _merge_timeline(options.timeline, code)
    if not (options.workers or options.hosts or options.hostfile):
        if environment.get("DMLC_ROLE"):
            return _run_one_role(options, environment)
        if read_allocation(environment) is None:
            behind = set(options.command) & {"-np", "--np", "--workers", "-H", "--hosts"}
            hint = f"; {min(behind)} behind the command is the program's" if behind else ""
            refuse(f"-np is missing: how many workers? (or set DMLC_ROLE){hint}")
    require_command(options)
    code = _run_job(options, environment)
    return code if options.dry_run else _merge_timeline(options.timeline, code)


def _merge_timeline(file: str | None, code: int) -> int:
    """Merges and explains what was recorded, if it can be; returns the job's exit code."""
    folder = timeline_folder(file) if file else ""
    if not (file and os.path.isdir(folder)):
        return code
    if not os.listdir(folder):
        say(f"WARNING no timeline: no process of the job wrote one into {folder}")
        with contextlib.suppress(OSError):
            os.rmdir(folder)
        return code
    with contextlib.redirect_stdout(sys.stderr):  # standard output is the workers'
        if timeline_report.main([folder, "--out", file, "--explain"]):
            say(f"WARNING the timelines in {folder} have not been merged")
    return code


def _print_manifests(options: argparse.Namespace, environment: dict[str, str]) -> int:
    if options.hosts or options.hostfile or options.host_script:
        refuse("--dry-run: Kubernetes chooses the hosts")
    workers = options.max_workers or options.workers
    if not (workers and options.image):
        refuse("--dry-run needs -np and --image")
    elastic = bool(options.min_workers)
    if elastic and options.dry_run not in kubernetes.ELASTIC_KINDS:
        refuse(f"--dry-run {options.dry_run}: its number of workers is fixed: leave --min-np")
    if options.server_image and not (options.servers or elastic):
        refuse("--server-image needs --servers: without, every worker hosts a server")
    variables = variables_of(options, environment)
    job = kubernetes.PodJob(
        options.name,
        options.image,
        workers,
        options.servers or 0,
        options.command,
        take_secret(environment),
        {**variables, **limits_of(options)} if elastic else variables,
        kubernetes.read_resources(options.resources) if options.resources else {},
        options.server_image,
        options.min_workers,
    )
    print(kubernetes.to_yaml(job.manifests(options.dry_run)), end="")
    return 0


def _run_job(options: argparse.Namespace, environment: dict[str, str]) -> int:
    plan = new_plan(options, environment)
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
        address = scheduler_address(options, launcher, plan.host_names())
    if options.dry_run:
        alone = [] if not plan.needs_scheduler else [plan.scheduler_task(address)]
        tasks = plan.server_tasks(address, plan.scheduler_port)
        tasks = alone + tasks + plan.worker_tasks(address, plan.scheduler_port)
        return _print_plan(counted(plan.workers, "worker"), plan, launcher, tasks)
    with Job(launcher, verbose=options.verbose, **settings) as job:
        if not options.quiet:
            job.say(headline(counted(plan.workers, "worker"), plan, launcher))
        backend = launcher.environment.get("KERAS_BACKEND", "tensorflow")
        if backend not in ("tensorflow", "jax"):
            job.say(
                f"WARNING KERAS_BACKEND is {backend}, but tf_byteps trains with tensorflow or jax "
                "only"
            )
        if plan.needs_scheduler:
            task = plan.scheduler_task(address, job.report_descriptor, stays=True)
            port = job.start_scheduler(task)
        servers = plan.server_tasks(address, port, stay=True)
        job.start_all(servers + plan.worker_tasks(address, port))
        return job.run()


def _run_elastic_job(options: argparse.Namespace, environment: dict[str, str]) -> int:
    discovery = new_discovery(options, environment, say)
    hosts = discovery.first() if isinstance(discovery, HostScript) else discovery.poll()
    plan = new_elastic_plan(options, environment, hosts)
    launcher = new_launcher(options, environment, True)
    most, failures = options.max_workers, options.host_failures
    slots = sum(host.slots for host in hosts)
    first = dataclasses.replace(plan, workers=min(slots, most or slots), hosts=tuple(hosts))
    ports.check(first, launcher.environment)
    screen = Screen(timestamps=options.timestamps)
    choice = _choice(options, environment)
    settings = {"verbose": options.verbose, "choice": choice, "screen": screen}
    names = [*(host.name for host in hosts), *plan.server_hosts]
    address = scheduler_address(options, launcher, names)
    least = int(plan.limits["BYTEPS_MIN_WORKERS"])
    workers = f"{least} to {most} workers" if most else f"at least {counted(least, 'worker')}"
    if options.dry_run:
        port = plan.scheduler_port
        tasks = [plan.scheduler_task(address), *plan.server_tasks(address, port)]
        places = [(host, slot) for host in hosts for slot in range(host.slots)][:most]
        for number, (host, slot) in enumerate(places):
            tasks.append(plan.worker_task(address, port, number, host, slot))
        return _print_plan(workers, plan, launcher, tasks)
    with ElasticJob(launcher, plan, discovery, most, failures, **settings) as job:
        if not options.quiet:
            job.say(headline(workers, plan, launcher, [host.name for host in hosts]))
        is_alone = not options.scheduler_host and all(map(is_local, names))
        job.begin(address, is_alone)
        return job.run()


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
    check_program(plan.command, hosts, launcher.environment)
    first = headline(workers, plan, launcher, [*hosts, *plan.server_hosts])
    return _print(dry_run.script(first, plan, tasks, launcher.shell_name))


def _print(text: str) -> int:
    print(text, end="")
    return 0


def _run_one_role(options: argparse.Namespace, environment: dict[str, str]) -> int:
    environment.update(variables_of(options, environment))
    config = Config.from_environment(environment)
    if config.role == "worker":
        require_command(options)
    launcher = Launcher(environment, {}, Ssh(), options.grace)
    tasks = tasks_of_one_role(config, tuple(options.command))
    if options.dry_run:
        return _print(dry_run.script_of_tasks(tasks, launcher.shell_name))
    screen = Screen(timestamps=options.timestamps)
    choice = _choice(options, environment)
    with Job(launcher, screen, verbose=options.verbose, choice=choice) as job:
        job.start_all(tasks)
        return job.run()


if __name__ == "__main__":
    sys.exit(main())
