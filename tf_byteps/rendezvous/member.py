"""A worker's side of an elastic job, besides joining: it holds a connection to the scheduler.

Through it the scheduler sees whether the process lives, and tells it when the workers are about to
change. It stays while the process leaves one epoch and joins the next.
"""

from __future__ import annotations

import logging
import secrets
import threading
import typing

import zmq
import zmq.backend.cython

from tf_byteps import _engine
from tf_byteps.errors import RendezvousError
from tf_byteps.rendezvous import messages
from tf_byteps.rendezvous.client import open_socket
from tf_byteps.rendezvous.presence import route_of
from tf_byteps.rendezvous.secret import job_secret

if typing.TYPE_CHECKING:
    from tf_byteps.config import Config

_LINGER_MILLISECONDS = 2000

_logger = logging.getLogger("tf_byteps")


class Member:
    """This process in an elastic job. Thread-safe.

    Args:
        config: the `Config` of the process.

    Attributes:
        name: what the scheduler knows it by, whatever its rank.
    """

    def __init__(self, config: Config) -> None:
        self.name = config.member or secrets.token_hex(4)
        self._lock = threading.Lock()
        self._changed = None  # the last `Changed`
        address = messages.Address(config.scheduler_host or "", config.scheduler_port or 0)
        self._context = zmq.Context()
        self._socket = open_socket(self._context, address, job_secret(config))
        self._socket.setsockopt(zmq.ROUTING_ID, route_of(self.name))
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, int(1000 * config.heartbeat_interval))
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, int(1000 * config.heartbeat_timeout))
        self._socket.connect(f"tcp://{address}")

    def change(self, epoch: int) -> str:
        """Why the workers of an epoch are about to change, in a sentence; "" if they are not."""
        with self._lock:
            while self._socket.poll(0):
                try:
                    message = messages.decode(self._socket.recv())
                except RendezvousError as error:
                    _logger.warning("received a message that cannot be read: %s", error)
                    continue
                if isinstance(message, messages.Changed):
                    self._changed = message
            is_current = self._changed is not None and self._changed.epoch == epoch
            return self._changed.reason if is_current else ""

    def say_done(self) -> None:
        """Tells the scheduler that this process needs the job no more."""
        with self._lock:
            self._socket.send(messages.encode(messages.Done(self.name)), zmq.NOBLOCK)

    def say_done_at_good_end(self) -> None:
        """Tells it that when this process ends, if that is with code 0; called while it ends.

        Nothing else may be called any more. Otherwise the scheduler sees the connection end, as it
        does when the process is killed.
        """
        with self._lock:
            self._socket.linger = _LINGER_MILLISECONDS
            _engine.send_at_good_end(
                zmq.backend.cython._zmq.__file__,
                self._socket,
                self._context,
                messages.encode(messages.Done(self.name)),
            )

    def close(self) -> None:
        """Ends the connection. Idempotent."""
        with self._lock:
            self._socket.close(linger=_LINGER_MILLISECONDS)
            self._context.term()
