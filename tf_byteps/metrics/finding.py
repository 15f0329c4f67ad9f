"""Where the processes of a job serve their metrics."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Sequence

from tf_byteps.config import OPTIONS, Config
from tf_byteps.errors import BytePSError, ConfigError
from tf_byteps.metrics.endpoint import MAX_PORT, ports_from, read_port
from tf_byteps.rendezvous.host import ALL_INTERFACES, numeric_addresses
from tf_byteps.rendezvous.messages import Address

_PROCESSES = pathlib.Path("/proc")
_PORT = OPTIONS["metrics_port"].variable
_HOST = OPTIONS["metrics_address"].variable
_HERE = Config().metrics_address


def addresses_from(first: Address) -> list[Address]:
    """Where a host's processes may serve, if `first` is what they were told."""
    return [Address(first.host, port) for port in ports_from(first.port)]


def read_address(text: str) -> Address:
    """Reads "HOST:PORT", or "PORT" of this host.

    Returns:
        An `Address` with a numeric host.

    Raises:
        ConfigError: the text has another form, or nobody knows the host.
    """
    host, _, number = text.rpartition(":")
    port = read_port(number)
    if port is None or (":" in text and not host):
        raise ConfigError(
            f"{text!r} is not an address: give HOST:PORT, with a port from 1 to {MAX_PORT}, such "
            "as 127.0.0.1:9400"
        )
    if not host:
        return Address(_HERE, port)
    found = numeric_addresses(host.removeprefix("[").removesuffix("]"))
    if not found:
        raise ConfigError(f"{text}: no host of this name is known here")
    return Address(found[0], port)


def find_here(processes: pathlib.Path = _PROCESSES) -> Address:
    """Where the job of this user on this host serves its metrics.

    The environments of running processes say it: those of a job, and of what has started them.

    Args:
        processes: a folder like /proc.

    Returns:
        The first of the ports that its processes share.

    Raises:
        BytePSError: there is no such job, or more than one.
    """
    found = set(_told(processes.glob("[0-9]*/environ")))
    if len(found) == 1:
        return found.pop()
    if not found:
        raise BytePSError(
            "no process of yours on this host serves metrics: start the job with bpslaunch "
            f"--metrics-port (or {_PORT}), or give the address of one, HOST:PORT"
        )
    listed = ", ".join(str(address) for address in sorted(found, key=lambda a: (a.host, a.port)))
    raise BytePSError(f"several jobs serve metrics on this host: choose one of {listed}")


def _told(environments: Iterable[pathlib.Path]) -> Iterable[Address]:
    for path in environments:
        try:
            entries = path.read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended, or is another user's
        port = read_port(_value(entries, _PORT))
        host = _value(entries, _HOST) or _HERE
        if port is not None:
            yield Address(_HERE if host == ALL_INTERFACES else host, port)


def _value(entries: Sequence[bytes], name: str) -> str:
    start = f"{name}=".encode()
    found = (entry for entry in entries if entry.startswith(start))
    return next(found, start).removeprefix(start).decode(errors="replace").strip()
