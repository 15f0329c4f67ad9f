"""Serves a process's metrics by HTTP. What fails here never fails the job."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import socketserver
import threading
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily

from tf_byteps.errors import ConfigError
from tf_byteps.metrics.collector import Collector
from tf_byteps.rendezvous.host import ALL_INTERFACES, numeric_addresses, own_address
from tf_byteps.rendezvous.messages import Address

if typing.TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication

    from tf_byteps.config import Config
    from tf_byteps.metrics.collector import Source

MOST_PORTS = 64  # that processes of a host take, one each
_MOST_REQUESTS = 8  # at a time; those beyond are refused
_REQUEST_SECONDS = 5.0
_NEVER_SECONDS = 3600.0  # between looks whether the endpoint is closed: closing it wakes the thread
MAX_PORT = 65535

_logger = logging.getLogger("tf_byteps")


class _Handler(WSGIRequestHandler):
    timeout = _REQUEST_SECONDS  # between bytes; nobody keeps a thread for ever

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], app: WSGIApplication) -> None:
        self._free = threading.BoundedSemaphore(_MOST_REQUESTS)
        super().__init__(address, _Handler)
        self.set_app(app)

    def server_bind(self) -> None:
        # WSGIServer's own asks the name service for this host's name, which may take seconds.
        socketserver.TCPServer.server_bind(self)
        host, self.server_port = self.server_address[:2]
        self.server_name = str(host)
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> Any:
        if not self._free.acquire(blocking=False):
            return self.shutdown_request(request)
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread can be started
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # what strangers send is no matter of the job's log


class Endpoint:
    """The open endpoint of a process.

    Args:
        server: listens already.
        host: at which others reach it.
    """

    def __init__(self, server: _Server, host: str) -> None:
        self._server = server
        self.address = Address(host, server.server_port)
        threading.Thread(
            target=server.serve_forever,
            args=[_NEVER_SECONDS],
            name="byteps-metrics",
            daemon=True,
        ).start()

    def close(self) -> None:
        """Frees the port. Requests that are being answered end by themselves. Idempotent."""
        if self._server.socket.fileno() == -1:
            return
        # Nobody can connect from here on, and the thread that waits for somebody wakes up.
        self._server.socket.shutdown(socket.SHUT_RDWR)
        self._server.shutdown()
        self._server.server_close()

    def forget(self) -> None:
        """For a forked child: it must not hold its parent's port."""
        self._server.socket.close()


def open_endpoint(
    config: Config, name: str, sources: Sequence[Source], job: Source | None = None
) -> Endpoint | None:
    """Opens the endpoint if `Config.metrics_port` asks for one.

    Args:
        config: the `Config` of this process.
        name: what the log calls this process.
        sources: see `Collector`.
        job: what /metrics has besides: the job's sums. Who reads all processes takes /process.

    Returns:
        An `Endpoint`; None if there is none. The log says why none could be opened.
    """
    if config.metrics_port is None:
        return None
    first = read_port(config.metrics_port)
    if first is None:
        _warn(f"{config.named('metrics_port')}, but must be a whole number from 1 to {MAX_PORT}")
        return None
    apps = {"/process": _app(sources), "/metrics": _app([*sources, *([job] if job else [])])}
    try:
        server = _listen(config.metrics_address, first, _only_metrics(apps))
    except OSError as error:
        last = ports_from(first)[-1]
        _warn(f"ports {first} to {last} of {config.metrics_address} cannot be used: {error}")
        return None
    host = config.metrics_address
    _logger.info("%s serves metrics at http://%s:%d/metrics", name, host, server.server_port)
    return Endpoint(server, _reached_at(config, str(server.server_address[0])))


def _reached_at(config: Config, bound: str) -> str:
    """The numeric address that this process gives to others."""
    if bound != ALL_INTERFACES or config.scheduler_host is None:
        return bound
    try:
        return next(iter(numeric_addresses(own_address(config))), bound)
    except ConfigError:  # whom the job needs at this address says so
        return bound


class _ProcessId:
    """With it `bpstop` tells processes apart that were started within a hundredth of a second."""

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("process_id", "This process's ID on its host.", os.getpid())


def _app(sources: Sequence[Source]) -> WSGIApplication:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_ProcessId())
    registry.register(Collector(sources))
    return make_wsgi_app(registry)


@contextlib.contextmanager
def serving(
    config: Config, name: str, sources: Sequence[Source], job: Source | None = None
) -> Iterator[Endpoint | None]:
    """`open_endpoint` for the time of a `with` block."""
    endpoint = open_endpoint(config, name, sources, job)
    try:
        yield endpoint
    finally:
        if endpoint is not None:
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


def _listen(host: str, first: int, app: WSGIApplication) -> _Server:
    """The first free port of those that this host's processes share."""
    in_use = None
    for port in ports_from(first):
        try:
            return _Server((host, port), app)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            in_use = error
    raise in_use or OSError(errno.EADDRINUSE, "no port is free")


def _only_metrics(apps: Mapping[str, WSGIApplication]) -> WSGIApplication:
    def answer(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        app = apps.get("/metrics" if environ["PATH_INFO"] == "/" else environ["PATH_INFO"])
        if app is None or environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"metrics are at /metrics\n"]
        return app(environ, start_response)

    return answer
