"""Answers requests for a process's metrics, a few at a time, at a port or a Unix socket."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
import socketserver
import threading
import time
import typing
from collections.abc import Mapping
from typing import Any, ClassVar

from tf_byteps.metrics.local import peer_user

if typing.TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from tf_byteps.metrics.pages import Content

_MOST_REQUESTS = 8  # at a time; a newer one takes the place of the oldest that is not complete
_NEVER_SECONDS = 3600.0  # between looks whether it is closed: closing it wakes the thread
_NO_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_SECONDS = 0.5
_ROOT = 0


class Listener(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Listens at a numeric host and a port. A thread sleeps until somebody asks.

    Args:
        address: as `socket.bind` takes it.
        pages, job: see `pages.application`.

    Raises:
        OSError: nobody can listen there.
        RuntimeError: no thread can be started.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 16
    # What wsgiref asks a server for; the pages need none of it.
    base_environ: ClassVar = {"SCRIPT_NAME": ""}

    def __init__(self, address: Any, pages: Mapping[str, Content], job: int) -> None:
        self._lock = threading.Lock()  # guards the two below
        self._incoming: dict[Any, None] = {}  # requests that are not complete, the oldest first
        self._answered: set[Any] = set()
        self._pages, self._job = pages, job
        super().__init__(address, socketserver.BaseRequestHandler)
        thread = threading.Thread(
            target=self.serve_forever, args=[_NEVER_SECONDS], name="byteps-metrics", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            self.server_close()
            raise

    def close(self) -> None:
        """Nobody can ask any more. Requests that are being answered end by themselves."""
        if self.socket.fileno() == -1:
            return
        # Nobody can connect from here on, and the thread that waits for somebody wakes up.
        self.socket.shutdown(socket.SHUT_RDWR)
        self.shutdown()
        self.server_close()

    def get_request(self) -> tuple[Any, Any]:
        """Called by the thread when somebody connects."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in _NO_RESOURCES:  # who connects goes on waiting: no reason to spin
                time.sleep(_PAUSE_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> Any:
        """Answers in a thread."""
        if not self._admit(request):
            return self.shutdown_request(request)
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread can be started
            self._forget(request)
            raise

    def _admit(self, request: Any) -> bool:
        with self._lock:
            if len(self._incoming) + len(self._answered) >= _MOST_REQUESTS:
                if not self._incoming:
                    return False
                oldest = next(iter(self._incoming))
                del self._incoming[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread wakes, and ends
            self._incoming[request] = None
            return True

    def note_request(self, request: Any) -> None:
        """Called by the handler: the request is complete, and is about to be answered."""
        with self._lock:
            if request in self._incoming:
                del self._incoming[request]
                self._answered.add(request)

    def _forget(self, request: Any) -> None:
        with self._lock:
            self._incoming.pop(request, None)
            self._answered.discard(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """What that thread does."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answers."""
        from tf_byteps.metrics.pages import Handler  # only now, as it says

        Handler(request, client_address, self)  # pyright: ignore[reportArgumentType]

    def get_app(self) -> WSGIApplication:
        """Called by the handler."""
        return self._app

    @functools.cached_property
    def _app(self) -> WSGIApplication:
        from tf_byteps.metrics.pages import application

        return application(self._pages, self._job)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """What strangers send is no matter of the job's log."""


class LocalListener(Listener):
    """Listens at a `LocalSocket`'s name, and answers only this process's user and root."""

    address_family = socket.AF_UNIX
    allow_reuse_address = False

    def get_request(self) -> tuple[Any, Any]:
        """Gives the other side an address, which it has not, but wsgiref wants one."""
        return super().get_request()[0], ("local", 0)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether this one is answered."""
        return peer_user(request) in (os.geteuid(), _ROOT)
