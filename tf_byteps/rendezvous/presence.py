"""Which members of an elastic job are there, as the scheduler's socket knows it.

Each member holds a connection with a name of its own (see `member`), and ZeroMQ's threads keep it
up: a message to one that is lost cannot be sent.
"""

from __future__ import annotations

import time

import zmq

from tf_byteps.rendezvous import messages
from tf_byteps.rendezvous.frames import send_frames
from tf_byteps.rendezvous.router import Router

_PROBE_SECONDS = 0.2
_ROUTE_PREFIX = "member/"


def route_of(member: str) -> bytes:
    """The name of a member's connection, by which the scheduler finds it."""
    return (_ROUTE_PREFIX + member).encode()


class MemberRouter(Router):
    """A `Router` that notices who is lost. See `Router`."""

    def _prepare(self, router: zmq.Socket) -> None:
        self._probed = {}  # member: whether it was there, when it was asked, and since when so
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # to learn that somebody is lost
        router.setsockopt(zmq.ROUTER_HANDOVER, 1)  # who comes back is found under its name again
        milliseconds = int(1000 * self._config.heartbeat_timeout)
        router.setsockopt(zmq.HEARTBEAT_IVL, int(1000 * self._config.heartbeat_interval))
        router.setsockopt(zmq.HEARTBEAT_TIMEOUT, milliseconds)

    def send_encoded(self, route: bytes, data: bytes) -> None:
        """See `Router.send_encoded`."""
        try:
            send_frames(self._socket, [route, data], zmq.NOBLOCK)
        except zmq.ZMQError:
            pass  # it is lost: that is noticed by itself

    def is_there(self, member: str) -> bool | None:
        """Whether a member is connected, as of a moment ago."""
        now = time.monotonic()
        there, asked, since = self._probed.get(member, (None, 0.0, now))
        if now - asked > _PROBE_SECONDS:
            answer = self._reaches(member)
            since = since if answer == there else now
            there = answer
            self._probed[member] = (there, now, since)
        return there

    def since(self, member: str) -> float:
        """For how many seconds `is_there` has said of a member what it says."""
        return time.monotonic() - self._probed[member][2]

    def _reaches(self, member: str) -> bool:
        try:
            message = messages.encode(messages.Present())
            send_frames(self._socket, [route_of(member), message], zmq.NOBLOCK)
        except zmq.Again:  # it does not read, but it is there
            return True
        except zmq.ZMQError:
            return False
        return True
