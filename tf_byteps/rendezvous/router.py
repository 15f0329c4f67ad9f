"""The scheduler's socket, at which processes ask to take part, and get their answers."""

from __future__ import annotations

import logging
import typing

import zmq

from tf_byteps import logs
from tf_byteps.errors import RendezvousError
from tf_byteps.rendezvous import messages
from tf_byteps.rendezvous.binding import bind
from tf_byteps.rendezvous.frames import send_frames
from tf_byteps.rendezvous.gate import Gate
from tf_byteps.rendezvous.host import ALL_INTERFACES, listening_address

if typing.TYPE_CHECKING:
    from tf_byteps.config import Config
    from tf_byteps.rendezvous.messages import Join
    from tf_byteps.rendezvous.participant import Refusal

LINGER_MILLISECONDS = 2000  # for the last messages in flight
# Connections that wait to be accepted: with ZeroMQ's 100, others try again a second later.
_BACKLOG = 4096

_logger = logging.getLogger("tf_byteps")


class Router:
    """Listens for processes, and knows each by its route. One thread uses it.

    Args:
        config: the `Config` of the process that listens.
        secret: the job's; with one, only those who know it get through.

    Raises:
        RendezvousError: the address cannot be used.
    """

    def __init__(self, config: Config, secret: str | None) -> None:
        self._config = config
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._gate = Gate(self._context, self._socket, secret) if secret else None
        self._socket.setsockopt(zmq.LINGER, LINGER_MILLISECONDS)
        self._socket.setsockopt(zmq.MAXMSGSIZE, messages.MAX_BYTES)
        self._socket.setsockopt(zmq.BACKLOG, _BACKLOG)
        self._prepare(self._socket)
        self.address = self._bind(config.scheduler_host or "127.0.0.1", config.scheduler_port or 0)

    def _prepare(self, router: zmq.Socket) -> None:
        """Sets what else the socket needs before it is bound."""

    def _bind(self, host: str, port: int) -> messages.Address:
        numeric = listening_address(self._config, host)
        if numeric == ALL_INTERFACES:
            _logger.info(
                "the name %s does not resolve to an address of this machine: the scheduler "
                "listens at all interfaces",
                host,
            )
        try:
            ports = [port] if port else self._config.listening_ports or [0]
            return messages.Address(host, bind(self._socket, numeric, ports))
        except zmq.ZMQError as error:
            self.close()
            reason = str(error.strerror or error).partition(" (addr=")[0]  # the address is said
            if not port and self._config.ports:
                raise RendezvousError(
                    f"the scheduler can listen at none of the ports of {host} that "
                    f"{self._config.named('ports')} allows ({reason}): give it more"
                ) from None
            raise RendezvousError(
                f"the scheduler cannot listen at {host}:{port} ({reason}): is another one running "
                f"there? Choose another DMLC_PS_ROOT_PORT"
            ) from None

    def poll(self, seconds: float) -> bool:
        """Whether a message comes within that time."""
        polled = self._socket if self._gate is None else self._gate
        return bool(polled.poll(int(1000 * seconds)))

    def receive(self) -> tuple[bytes, messages.Message | None]:
        """The next message, and the route to who has sent it; None: it is not understood."""
        frames = self._socket.recv_multipart()
        route = frames[0]
        try:
            return route, messages.decode(frames[-1])
        except RendezvousError as error:
            _logger.warning("received a message that cannot be read: %s", error)
            self.send(route, messages.Refused(str(error)))
            return route, None

    def send(self, route: bytes, message: messages.Message) -> None:
        """Sends a message, or drops it if who is there does not read."""
        self.send_encoded(route, messages.encode(message))

    def send_encoded(self, route: bytes, data: bytes) -> None:
        """`send` of a message that is encoded already."""
        try:
            send_frames(self._socket, [route, data], zmq.NOBLOCK)
        except zmq.ZMQError as error:  # a full queue: that peer has stopped reading
            _logger.warning("a message to a participant was dropped: %s", error)

    def refuse(self, route: bytes, join: Join, refusal: Refusal) -> None:
        """Says to a process, and in the log, why it cannot take part."""
        _logger.warning(
            "a %s (%s) is refused: %s",
            join.role,
            join.process,
            refusal,
            extra=logs.event("process_refused", peer_role=join.role, peer=join.process),
        )
        self.send(route, messages.Refused(str(refusal)))

    def close(self) -> None:
        """Frees the port. Idempotent."""
        if self._gate is not None:
            self._gate.close()
            self._gate = None
        self._socket.close()
        self._context.term()
