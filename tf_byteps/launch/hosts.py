"""Hosts: what -H means, which of them is this machine, and what the others get from it."""

import dataclasses
import re
import socket
import sys
from collections.abc import Iterable, Mapping

from tf_byteps.errors import ConfigError
from tf_byteps.rendezvous.host import route_address

# What a remote process gets of this environment, besides what --env names.
_PASSED_PREFIXES = ("BYTEPS_", "DMLC_", "TF_", "XLA_", "CUDA_")
NEVER_PASSED = ("BYTEPS_JOB_SECRET", "BYTEPS_JOB_SECRET_FILE")  # the launcher has read them
# What it takes to start Python there. All else goes through the guard's standard input.
_PASSED = ("PYTHONPATH", "PYTHONUNBUFFERED", "PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV")

_HOST = re.compile(r"(?:(?P<name>[^\s:\[\]]+)|\[(?P<address>[0-9a-fA-F:]+)\])(?::(?P<slots>\d+))?")
_SLOTS = re.compile(r"\s+slots\s*=\s*(\d+)$")


@dataclasses.dataclass(frozen=True)
class Host:
    """A machine and how many workers it takes."""

    name: str
    slots: int

    @property
    def is_local(self) -> bool:
        return is_local(self.name)


def parse_hosts(text: str) -> list[Host]:
    """Reads "host1:4,host2:4"; a host without a number takes one worker.

    Raises:
        ConfigError: the text has another form.
    """
    return _distinct([_read_host(entry.strip(), f"-H {text}") for entry in text.split(",")], "-H")


def read_hostfile(path: str) -> list[Host]:
    """Reads a file with a host on each line: "host", "host:4", or "host slots=4"; "#" comments.

    Raises:
        ConfigError: it cannot be read, or has another form.
    """
    where = f"--hostfile {path}"
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.partition("#")[0].strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"{where} cannot be read: {reason}") from None
    hosts = [
        _read_host(_SLOTS.sub(r":\1", line), f"{where}, line {number}")
        for number, line in enumerate(lines, 1)
        if line
    ]
    if not hosts:
        raise ConfigError(f"{where} names no host")
    return _distinct(hosts, where)


def given_hosts(hosts: str | None, hostfile: str | None) -> list[Host] | None:
    """What -H or --hostfile says; None if neither is given.

    Raises:
        ConfigError: both are given, or one cannot be understood.
    """
    if hosts and hostfile:
        raise ConfigError("-H and --hostfile both say which hosts to use: give one of them")
    if hostfile:
        return read_hostfile(hostfile)
    return parse_hosts(hosts) if hosts else None


def _read_host(entry: str, where: str) -> Host:
    match = _HOST.fullmatch(entry)
    if match is None or match["slots"] == "0":
        hint = "; IPv6 addresses stand in brackets, [fd00::2]:4" if entry.count(":") > 1 else ""
        raise ConfigError(f'{where}: {entry!r} is not of the form "host" or "host:workers"{hint}')
    return Host(match["name"] or match["address"], int(match["slots"] or 1))


def _distinct(hosts: list[Host], where: str) -> list[Host]:
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{where}: {name} is listed {names.count(name)} times")
    return hosts


def is_local(name: str) -> bool:
    """Whether processes for this host are started without a remote shell."""
    own = socket.gethostname()
    return name in ("localhost", "127.0.0.1", "::1", own, own.partition(".")[0])


def address_for(names: Iterable[str]) -> str:
    """This machine's address that all of these hosts can reach.

    Raises:
        ConfigError: it cannot be told.
    """
    remote = [name for name in names if not is_local(name)]
    if not remote:
        return "127.0.0.1"
    name = remote[0].rpartition("@")[2]  # "user@host"
    try:
        socket.getaddrinfo(name, None)
    except socket.gaierror as error:
        raise ConfigError(
            f"the name {name!r} cannot be resolved ({error.strerror}): is the host name right? If "
            f"only ssh knows it, give the address at which it reaches this machine with "
            f"--scheduler-host"
        ) from None
    return route_address(name)


def passed_environment(environment: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The part of `environment` that goes to remote processes."""
    return {
        name: value
        for name, value in environment.items()
        if name not in NEVER_PASSED
        and (name.startswith(_PASSED_PREFIXES) or name in _PASSED or name in names)
    }


def to_start_python(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of `environment` that a remote Python needs to start; no secrets are in it."""
    return {name: value for name, value in environment.items() if name in _PASSED}


def guarded(
    command: Iterable[str], grace: float, keep: Iterable[int] = (), variables_by_stdin: bool = False
) -> list[str]:
    """The command that runs `command` under a guard."""
    line = [sys.executable, "-m", "tf_byteps.launch.guard", "--grace", f"{grace:g}"]
    if variables_by_stdin:
        line.append("--variables-by-stdin")
    for descriptor in keep:
        line += ["--keep-fd", str(descriptor)]
    return [*line, "--", *command]
