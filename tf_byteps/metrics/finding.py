"""Where the processes of a job answer."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence

from tf_byteps.config import OPTIONS, Config
from tf_byteps.errors import BytePSError, ConfigError
from tf_byteps.metrics import proc
from tf_byteps.metrics.endpoint import MAX_PORT, ports_from, read_port
from tf_byteps.metrics.local import LocalJob, LocalSocket, local_jobs
from tf_byteps.metrics.reading import Direct
from tf_byteps.rendezvous.host import ALL_INTERFACES, numeric_addresses
from tf_byteps.rendezvous.messages import Address

_PROCESSES = pathlib.Path("/proc")
_PORT = OPTIONS["metrics_port"].variable
_HOST = OPTIONS["metrics_address"].variable
_HERE = Config().metrics_address
_MOST_LETTERS = 80  # of a command


def addresses_of(given: Address | LocalJob) -> Sequence[Direct]:
    """Where the processes of a job may answer now.

    Args:
        given: a job on this host, or the address that a host's processes were told.
    """
    if isinstance(given, LocalJob):
        return local_jobs().get(given, ())
    return [Address(given.host, port) for port in ports_from(given.port)]


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


def find_here(process: int | None = None) -> Address | LocalJob:
    """The job of this user on this host.

    Args:
        process: the number of one of its processes, or of one that has started them, such as
            bpslaunch; None: it is the only job, or the only one of its own that root has.

    Returns:
        A `LocalJob`; or the address of one that has no local sockets here: it may run in another
        network namespace, or another version of tf_byteps.

    Raises:
        BytePSError: there is no such job, or more than one.
    """
    jobs = {
        job: sockets
        for job, sockets in local_jobs().items()
        if any(socket.is_genuine for socket in sockets)
    }
    asked = {
        job: sockets for job, sockets in jobs.items() if process is None or _has(sockets, process)
    }
    if process is None:  # others may have sockets here, which root sees
        asked = {job: jobs[job] for job in jobs if job.user == os.geteuid()} or asked
    if len(asked) == 1:
        return next(iter(asked))
    if asked:
        raise BytePSError(
            "several jobs run on this host: choose one with --pid, by a process of it: "
            f"{_listed(asked)}"
        )
    if process is not None:
        others = f"those here have {_listed(jobs)}" if jobs else "there is none on this host"
        raise BytePSError(f"process {process} belongs to no job of yours: {others}")
    return address_here()


def _has(sockets: Sequence[LocalSocket], process: int) -> bool:
    """Whether a process is one of a job's, or has started one of them."""
    return any(process in proc.with_ancestors(socket.process) for socket in sockets)


def _listed(jobs: Mapping[LocalJob, Sequence[LocalSocket]]) -> str:
    """For each job the number of a process, its command, its age, and how many workers it has."""
    lists = []
    for sockets in jobs.values():
        numbers = sorted(socket.process for socket in sockets)
        roles = {number: proc.variable(number, "DMLC_ROLE") or "worker" for number in numbers}
        workers = [number for number in numbers if roles[number] == "worker"]
        shown = (workers or numbers)[0]
        size = proc.variable(shown, "BYTEPS_GLOBAL_SIZE")
        known = [proc.command(shown)[:_MOST_LETTERS], _lasting(proc.age(shown))]
        known.append(f"{size or len(workers)} workers")
        lists.append(f"{shown} ({', '.join(filter(None, known))})")
    return "; ".join(lists)


def _lasting(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 120:
        return f"for {seconds:.0f} s"
    return f"for {seconds / 60:.0f} min" if seconds < 7200 else f"for {seconds / 3600:.0f} h"


def address_here(processes: pathlib.Path = _PROCESSES) -> Address:
    """Where the job of this user on this host serves its metrics for Prometheus.

    The environments of running processes say it: those of a job, and of what has started them.

    Args:
        processes: a folder like /proc.

    Returns:
        The first of the ports that its processes share.

    Raises:
        BytePSError: there is no such job, or more than one.
    """
    found = set(_addresses(processes.glob("[0-9]*/environ")))
    if len(found) == 1:
        return found.pop()
    if not found:
        raise BytePSError(
            "no job of yours runs on this host: start bpstop where one runs, as the same user. Or "
            f"start the job with bpslaunch --metrics-port (or {_PORT}), and give the address of a "
            "process, HOST:PORT"
        )
    listed = ", ".join(str(address) for address in sorted(found, key=lambda a: (a.host, a.port)))
    raise BytePSError(f"several jobs serve metrics on this host: choose one of {listed}")


def _addresses(environments: Iterable[pathlib.Path]) -> Iterable[Address]:
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
