"""Which variables a job's processes get: from options, and from the environment of bpslaunch."""

import argparse
import errno
import fcntl
import os
import re
from collections.abc import Mapping
from typing import Any

from tf_byteps.config import OPTIONS, Config
from tf_byteps.errors import ConfigError
from tf_byteps.launch import compile_cache
from tf_byteps.launch.hosts import passed_environment
from tf_byteps.launch.launcher import Launcher
from tf_byteps.launch.plan import TOPOLOGY
from tf_byteps.launch.remote_shells import new_remote_shell
from tf_byteps.rendezvous.secret import MIN_BYTES, new_secret, read_secret_file

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def new_launcher(
    options: argparse.Namespace, environment: Mapping[str, str], needs_secret: bool
) -> Launcher:
    """What starts processes here and on other hosts, with these options and variables."""
    given = variables_of(options, environment)
    environment = {name: value for name, value in environment.items() if name not in TOPOLOGY}
    environment.update(given)
    secret = take_secret(environment) if needs_secret else None
    if options.timeline and not options.dry_run:
        _prepare_timeline(options.timeline)
    remote = passed_environment(environment, given)
    shell = new_remote_shell(options, environment)
    return Launcher(environment, remote, shell, options.grace, secret)


def timeline_folder(file: str) -> str:
    """Where the processes of a job with --timeline FILE write theirs."""
    return f"{os.path.abspath(file)}.d"


def _prepare_timeline(file: str) -> None:
    """Makes the folder, for this job alone; a job before this one has left nothing there."""
    folder = timeline_folder(file)
    try:
        os.makedirs(folder, exist_ok=True)
        # Never closed: as long as this process lives, no other job has the folder.
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.listdir(folder):
            raise ConfigError(
                f"--timeline {file}: {folder} has files: remove it, or name another file"
            )
        for place in (folder, os.path.dirname(folder)):
            if not os.access(place, os.W_OK):
                raise PermissionError(errno.EACCES, f"nobody may write to {place}")
    except BlockingIOError:
        raise ConfigError(
            f"--timeline {file}: a running job writes there: name another file"
        ) from None
    except OSError as error:
        raise ConfigError(f"--timeline {file} cannot be written: {error.strerror}") from None


def variables_of(options: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that options stand for: --env, and those with a name of their own."""
    variables = dict(_read_variable(text, environment) for text in options.variables)
    if options.stall_shutdown_seconds:
        variables["BYTEPS_STALL_SHUTDOWN_SECONDS"] = str(options.stall_shutdown_seconds)
    if options.metrics_port:
        variables["BYTEPS_METRICS_PORT"] = options.metrics_port
    if options.ports:
        variables["BYTEPS_PORTS"] = options.ports
    if options.timeline:
        variables["BYTEPS_TIMELINE"] = f"{timeline_folder(options.timeline)}/"
    if options.network_interface:
        variables["DMLC_INTERFACE"] = options.network_interface
    if options.tls:
        variables["BYTEPS_TLS"] = "1"
    if options.compile_cache:
        flags = variables.get("TF_XLA_FLAGS", environment.get("TF_XLA_FLAGS", ""))
        variables["TF_XLA_FLAGS"] = compile_cache.flags(flags, options.compile_cache)
    return variables


def read_setting(environment: Mapping[str, str], name: str) -> Any:
    """What the processes are told of a setting."""
    described = OPTIONS[name]
    given = environment.get(described.variable, "").strip()
    return described.read(given) if given else getattr(Config(), name)


def take_secret(environment: dict[str, str]) -> str:
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


def _read_variable(text: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """A pair of name and value from "NAME=VALUE", or from "NAME" and this environment."""
    name, has_value, value = text.partition("=")
    if has_value and name == "BYTEPS_JOB_SECRET":
        raise ConfigError(
            "--env BYTEPS_JOB_SECRET=...: everybody on this machine can see a command line; set "
            "the variable in the environment of bpslaunch, or BYTEPS_JOB_SECRET_FILE"
        )
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"--env {text!r}: {name!r} is no variable's name: give --env once for each variable, "
            f"as NAME=VALUE"
        )
    if has_value:
        return name, value
    if name not in environment:
        raise ConfigError(f"--env {name}: there is no such variable here; give a value, {name}=...")
    return name, environment[name]
