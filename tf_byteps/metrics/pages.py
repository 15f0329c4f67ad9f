"""The pages that a process serves, for Prometheus and bpstop.

Imported at the first request: prometheus_client takes a twentieth of a second and some megabytes,
and most processes are never asked.
"""

from __future__ import annotations

import io
import os
import socket
import time
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import (
    CollectorRegistry,
    Metric,
    ProcessCollector,
    generate_latest,
    make_wsgi_app,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from tf_byteps.errors import BytePSError
from tf_byteps.metrics.names import COMMON_LABELS, COUNTER, GROUPS, METRICS
from tf_byteps.metrics.sources import Source

if typing.TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication

    from tf_byteps.metrics.listener import Listener

_REQUEST_SECONDS = 5.0
_MOST_REQUEST_BYTES = 1 << 16
_END_OF_REQUEST = (b"\r\n\r\n", b"\n\n")


class Handler(WSGIRequestHandler):
    """Answers a request to a `Listener`."""

    timeout = _REQUEST_SECONDS  # for sending the answer

    def setup(self) -> None:
        """Reads the request, which has to come as a whole in some seconds."""
        super().setup()
        self.rfile = io.BytesIO(_read_request(self.connection))
        self.connection.settimeout(self.timeout)
        typing.cast("Listener", self.server).note_request(self.connection)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _read_request(connection: socket.socket) -> bytes:
    """Its lines: no request for a page has more.

    Raises:
        TimeoutError: the whole has not come in time.
        ValueError: it is too long.
    """
    deadline = time.monotonic() + _REQUEST_SECONDS
    request = b""
    while not any(end in request for end in _END_OF_REQUEST):
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        data = connection.recv(_MOST_REQUEST_BYTES)
        if not data:
            break
        request += data
        if len(request) > _MOST_REQUEST_BYTES:
            raise ValueError("a request for metrics is not that long")
    return request


class Collector:
    """What the registry of prometheus_client calls at each scrape.

    Args:
        sources: functions that each return a list of (source, labels, values): one of `GROUPS`, the
            values of `COMMON_LABELS` and of the group's, and a dict of the engine's values.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """Yields a family for each metric that this process has."""
        found = {}
        for read in self._sources:
            for group, labels, values in read():
                found.setdefault(group, []).append((labels, values))
        for metric in METRICS:
            if metric.source not in found:
                continue
            kind = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
            names = (*COMMON_LABELS, *GROUPS[metric.source])
            family = kind(metric.name, metric.help, labels=names)
            for labels, values in found[metric.source]:
                family.add_metric(
                    [str(label) for label in labels], values[metric.key] * metric.scale
                )
            yield family


class _Identity:
    """Lets `bpstop` tell processes apart that were started in the same hundredth of a second, and
    jobs whose processes share a range of ports."""

    def __init__(self, job: int) -> None:
        self._job = job

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("process_id", "This process's ID on its host.", os.getpid())
        yield GaugeMetricFamily("process_job", "The same in all processes of a job.", self._job)


# A page's sources, or a function of the request's query that returns what it has.
Content = Sequence[Source] | Callable[[str], bytes]


def application(pages: Mapping[str, Content], job: int) -> WSGIApplication:
    """Serves pages of metrics.

    Args:
        pages: the content of each, by its path. One of them is "/metrics".
        job: `LocalJob.number` of this process's.
    """
    apps = {
        path: _plain(content) if callable(content) else make_wsgi_app(_registry(content, job))
        for path, content in pages.items()
    }

    def answer(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        app = apps.get("/metrics" if environ["PATH_INFO"] == "/" else environ["PATH_INFO"])
        if app is None or environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"metrics are at /metrics\n"]
        return app(environ, start_response)

    return answer


def text_of(sources: Sequence[Source], job: int) -> bytes:
    """What a page of these sources has."""
    return generate_latest(_registry(sources, job))


def _plain(content: Callable[[str], bytes]) -> WSGIApplication:
    def answer(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        try:
            status, body = "200 OK", content(environ["QUERY_STRING"])
        except (BytePSError, OSError) as error:
            status, body = "409 Conflict", str(error).encode()
        start_response(status, [("Content-Type", "application/octet-stream")])
        return [body]

    return answer


def _registry(sources: Sequence[Source], job: int) -> CollectorRegistry:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Identity(job))
    registry.register(Collector(sources))
    return registry
