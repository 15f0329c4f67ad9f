"""Where a process serves its metrics. What fails here never fails the job."""

from __future__ import annotations

import contextlib
import errno
import logging
import typing
from collections.abc import Iterator, Mapping, Sequence

import zmq

from tf_byteps.errors import ConfigError
from tf_byteps.metrics import remote_processes
from tf_byteps.metrics.job_sum import job_source
from tf_byteps.metrics.listener import Listener, LocalListener
from tf_byteps.metrics.local import own_socket
from tf_byteps.rendezvous.host import ALL_INTERFACES, numeric_addresses, own_address
from tf_byteps.rendezvous.messages import Address
from tf_byteps.rendezvous.relay import Respondent
from tf_byteps.rendezvous.secret import job_secret

if typing.TYPE_CHECKING:
    from tf_byteps.config import Config
    from tf_byteps.job import JobScheduler
    from tf_byteps.metrics.pages import Content
    from tf_byteps.metrics.sources import Source
    from tf_byteps.rendezvous.messages import Book

    Pages = Mapping[str, Content]

MOST_PORTS = 64  # that processes of a host take, one each
MAX_PORT = 65535

_logger = logging.getLogger("tf_byteps")


class Endpoint:
    """What a process has opened.

    Args:
        listeners: as many as could be opened.
        address: at which others reach the one for Prometheus, if there is one.
        sources: of this process.
    """

    def __init__(
        self, listeners: Sequence[Listener], address: Address | None, sources: Sequence[Source]
    ) -> None:
        self._listeners = listeners
        self.address = address
        self._sources = sources
        self._respondent: Respondent | None = None

    def answer_scheduler(self, config: Config, book: Book, rank: int) -> None:
        """Also answers the scheduler, which bpstop asks for the processes on other hosts.

        Args:
            config: the `Config` of this process.
            book: its job's.
            rank: its rank in its role.
        """
        if book.relay_endpoint is None:
            return
        secret = job_secret(config)
        if secret is None:
            return

        def answer() -> bytes:
            from tf_byteps.metrics.pages import text_of  # only now, as it says

            return text_of(self._sources, own_socket(config).job.number)

        name = book.name_of(config.role, rank)
        try:
            self._respondent = Respondent(book.relay_endpoint, secret, name, answer)
        except (zmq.ZMQError, RuntimeError) as error:  # no thread can be started, or no socket
            _logger.debug("bpstop on the scheduler's host does not show this process: %s", error)

    def close(self) -> None:
        """Frees port and name. Requests that are being answered end by themselves. Idempotent."""
        for listener in self._listeners:
            listener.close()
        if self._respondent is not None:
            self._respondent.close()
            self._respondent = None

    def forget(self) -> None:
        """For a forked child: it must not hold its parent's port and name."""
        for listener in self._listeners:
            listener.socket.close()


def open_endpoint(
    config: Config,
    name: str,
    sources: Sequence[Source],
    scheduler: JobScheduler | None = None,
    for_user: Pages | None = None,
) -> Endpoint:
    """Opens a local socket for bpstop, and a port if `Config.metrics_port` asks for one.

    Args:
        config: the `Config` of this process; see `own_socket`.
        name: what the log calls this process.
        sources: see `Collector`.
        scheduler: the one that this process has. /metrics has the job's sums besides, and bpstop
            finds the processes on other hosts. Who reads all processes takes /process.
        for_user: further pages of the local socket, which only this process's user and root reach.

    Returns:
        An `Endpoint`. The log says why something could not be opened.
    """
    pages: dict[str, Content] = {"/process": sources, "/metrics": sources}
    local_pages = dict(for_user or {})
    if scheduler is not None:
        pages["/metrics"] = [*sources, job_source(scheduler, config)]
        local_pages[remote_processes.PATH] = lambda _: remote_processes.page_of(scheduler)
    local = _open_local(config, {**pages, **local_pages})
    at_port = _open_port(config, name, pages)
    address = None
    if at_port is not None:
        host, port = at_port.server_address[:2]
        address = Address(_reached_at(config, str(host)), int(port))
    listeners = [each for each in (local, at_port) if each is not None]
    return Endpoint(listeners, address, sources)


def _open_local(config: Config, pages: Pages) -> Listener | None:
    try:
        own = own_socket(config)
        return LocalListener(own.name, pages, own.job.number)
    except (OSError, RuntimeError) as error:
        _logger.debug("bpstop finds this process only by --metrics-port: %s", error)
        return None


def _open_port(config: Config, name: str, pages: Pages) -> Listener | None:
    if config.metrics_port is None:
        return None
    first = read_port(config.metrics_port)
    if first is None:
        _warn(f"{config.named('metrics_port')}, but must be a whole number from 1 to {MAX_PORT}")
        return None
    host = config.metrics_address
    try:
        listener = _listen(host, first, pages, own_socket(config).job.number)
    except (OSError, RuntimeError) as error:
        _warn(f"ports {first} to {ports_from(first)[-1]} of {host} cannot be used: {error}")
        return None
    port = listener.server_address[1]
    _logger.info("%s serves metrics at http://%s:%d/metrics", name, host, port)
    return listener


def _reached_at(config: Config, bound: str) -> str:
    """The numeric address that this process gives to others."""
    if bound != ALL_INTERFACES or config.scheduler_host is None:
        return bound
    try:
        return next(iter(numeric_addresses(own_address(config))), bound)
    except ConfigError:  # whom the job needs at this address says so
        return bound


@contextlib.contextmanager
def serving(
    config: Config, name: str, sources: Sequence[Source], scheduler: JobScheduler | None = None
) -> Iterator[Endpoint]:
    """`open_endpoint` for the time of a `with` block."""
    endpoint = open_endpoint(config, name, sources, scheduler)
    try:
        yield endpoint
    finally:
        endpoint.close()


def _warn(why: str) -> None:
    _logger.warning("%s. This process serves no metrics; the job goes on without them", why)


def read_port(given: str) -> int | None:
    """The number of a port, or None: the text is none."""
    port = int(given, 10) if given.isascii() and given.isdigit() and len(given) <= 5 else 0
    return port if 1 <= port <= MAX_PORT else None


def ports_from(first: int) -> range:
    """Those that a host's processes share."""
    return range(first, min(first + MOST_PORTS, MAX_PORT + 1))


def _listen(host: str, first: int, pages: Pages, job: int) -> Listener:
    """The first free port of those that this host's processes share."""
    in_use = None
    for port in ports_from(first):
        try:
            return Listener((host, port), pages, job)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            in_use = error
    raise in_use or OSError(errno.EADDRINUSE, "no port is free")
