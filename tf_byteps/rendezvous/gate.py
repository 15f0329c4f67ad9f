"""The scheduler's gate: with a job secret, only those who know it get through to rendezvous.

ZeroMQ's CURVE encrypts and authenticates. Both sides' keys follow from the secret: a participant
that does not know it cannot even begin to speak, as it lacks the scheduler's public key.
"""

import contextlib
import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from tf_byteps import logs
from tf_byteps.rendezvous.frames import send_frames
from tf_byteps.rendezvous.secret import curve_keys

_DOMAIN = b"tf_byteps"
_HANDSHAKE_MILLISECONDS = 2_000
_MOST_PEERS = 4096
_MOST_EVENTS = 1000  # at a time
# Refusals that are logged at once, and how often one more.
_LOG_BURST = 10
_LOG_SECONDS = 2.0
_UNKNOWN = "an address that is not known any more"

_logger = logging.getLogger("tf_byteps")


class Gate:
    """Guards the scheduler's socket; to be made before the socket is bound. One thread uses it.

    Args:
        context: the socket's `zmq.Context`.
        guarded: the socket.
        secret: the job's.
    """

    def __init__(self, context: zmq.Context, guarded: zmq.Socket, secret: str) -> None:
        self._participant = z85.decode(curve_keys(secret, "participant")[0])
        self._peers = {}  # address by descriptor
        self._failed = False
        self._refused = 0  # not logged yet
        self._budget = float(_LOG_BURST)
        self._budget_since = time.monotonic()
        self._answers = context.socket(zmq.REP)
        self._answers.bind("inproc://zeromq.zap.01")
        self._guarded = guarded
        self._monitor = guarded.get_monitor_socket(
            zmq.EVENT_ACCEPTED
            | zmq.EVENT_DISCONNECTED
            | zmq.EVENT_HANDSHAKE_FAILED_AUTH
            | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
            | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        )
        guarded.curve_server = True
        guarded.curve_secretkey = curve_keys(secret, "scheduler")[1]
        guarded.zap_domain = _DOMAIN
        guarded.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MILLISECONDS)
        self._poller = zmq.Poller()
        for polled in (guarded, self._answers, self._monitor):
            self._poller.register(polled, zmq.POLLIN)

    def poll(self, milliseconds: float) -> bool:
        """Lets participants in; whether the guarded socket has a message within that time."""
        end = time.monotonic() + milliseconds / 1000
        while True:
            left = max(0, int(1000 * (end - time.monotonic())))
            ready = dict(self._poller.poll(left))
            if self._answers in ready:
                self._admit()
            if self._monitor in ready:
                self._take_events()
            if self._guarded in ready:
                return True
            if not ready or time.monotonic() >= end:
                return False

    def close(self) -> None:
        """Before the guarded socket is closed."""
        self._guarded.disable_monitor()
        self._monitor.close(linger=0)
        self._answers.close(linger=0)

    def _admit(self) -> None:
        version, request, _, address, _, mechanism, *credentials = self._answers.recv_multipart()
        known = mechanism == b"CURVE" and credentials == [self._participant]
        if not known:
            self._log_refusal(address.decode(errors="replace"))
        code, text = (b"200", b"OK") if known else (b"400", b"unknown key")
        send_frames(self._answers, [version, request, code, text, b"", b""])

    def _take_events(self) -> None:
        """All that have come: strangers may make more of them than there are polls."""
        with contextlib.suppress(zmq.Again):
            for _ in range(_MOST_EVENTS):
                self._note(recv_monitor_message(self._monitor, zmq.NOBLOCK))

    def _note(self, event: Mapping[str, Any]) -> None:
        kind, descriptor = event["event"], event["value"]
        if kind == zmq.EVENT_ACCEPTED:
            if len(self._peers) < _MOST_PEERS:
                self._peers[descriptor] = peer_address(descriptor)
        elif kind == zmq.EVENT_DISCONNECTED:
            address = self._peers.pop(descriptor, _UNKNOWN)
            if self._failed:  # what has failed is disconnected next
                self._failed = False
                self._log_refusal(address)
        else:
            self._failed = True

    def _log_refusal(self, address: str) -> None:
        now = time.monotonic()
        gained = (now - self._budget_since) / _LOG_SECONDS
        self._budget = min(_LOG_BURST, self._budget + gained)
        self._budget_since = now
        if self._budget < 1:
            self._refused += 1
            return
        self._budget -= 1
        more = f" ({self._refused} more before)" if self._refused else ""
        self._refused = 0
        _logger.warning(
            "the scheduler refused a connection from %s, which has not this job's secret%s",
            address,
            more,
            extra=logs.event("connection_refused", address=address),
        )


def peer_address(descriptor: int) -> str:
    """Where an accepted connection comes from, as text; ZeroMQ may have closed it already."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as peer:
            host, port = peer.getpeername()[:2]
            return f"{host}:{port}"
    except (OSError, ValueError):
        return _UNKNOWN
