"""Lets the scheduler ask the job's processes on other hosts what they have to tell of themselves.

Each connects to a port of the scheduler's when it has the address book, and keeps the connection.
So nothing has to be opened on its own host. ZeroMQ's CURVE encrypts, and who does not know the
job's secret lacks the key without which no handshake begins.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import zmq

from tf_byteps.errors import RendezvousError
from tf_byteps.rendezvous.binding import bind
from tf_byteps.rendezvous.client import open_socket
from tf_byteps.rendezvous.messages import MAX_BYTES, Address
from tf_byteps.rendezvous.secret import curve_keys

_HANDSHAKE_MILLISECONDS = 10_000
# A host that is lost without a word is noticed after two of these.
_HEARTBEAT_MILLISECONDS = 5_000
_BACKLOG = 4096
_MOST_QUEUED = 4  # of a process: questions that it does not read need no queue

_logger = logging.getLogger("tf_byteps")


class Relay:
    """The scheduler's side. Thread-safe.

    Args:
        host: the numeric address to listen at.
        secret: the job's.
        ports: it listens at the first one that is free; 0: any.

    Raises:
        RendezvousError: nobody can listen there.
    """

    def __init__(self, host: str, secret: str, ports: Sequence[int] = (0,)) -> None:
        self._lock = threading.Lock()
        self._last = 0  # number of a question
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.curve_server = True
        self._socket.curve_secretkey = curve_keys(secret, "scheduler")[1]
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_BYTES)
        self._socket.setsockopt(zmq.SNDHWM, _MOST_QUEUED)
        self._socket.setsockopt(zmq.BACKLOG, _BACKLOG)
        self._socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MILLISECONDS)
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MILLISECONDS)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # to learn that somebody is lost
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)  # who comes back is found again
        try:
            self.port = bind(self._socket, host, ports)
        except zmq.ZMQError as error:
            self.close()
            reason = error.strerror or error
            raise RendezvousError(f"the scheduler cannot listen at {host}: {reason}") from None

    def ask(self, names: Iterable[str], seconds: float) -> Mapping[str, bytes | None]:
        """Asks processes at the same time.

        Args:
            names: those of their `Respondent`s.
            seconds: how long to wait for the answers.

        Returns:
            The answers by name; `None` of one that is there and has not answered in time. One that
            is not there has no entry.
        """
        answers: dict[str, bytes | None] = {}
        with self._lock:
            if self._socket.closed:
                return {}
            self._last += 1
            question = str(self._last).encode()
            for name in names:
                if self._send(name, question):
                    answers[name] = None
            deadline = time.monotonic() + seconds
            left = len(answers)
            while left and self._socket.poll(max(0, int(1000 * (deadline - time.monotonic())))):
                name, number, *answer = self._socket.recv_multipart()
                shown = name.decode(errors="replace")
                # Others are late answers, to an earlier question.
                if number == question and len(answer) == 1 and answers.get(shown, b"") is None:
                    answers[shown] = answer[0]
                    left -= 1
        return answers

    def _send(self, name: str, question: bytes) -> bool:
        """Whether the process is there."""
        try:
            self._socket.send_multipart([name.encode(), question], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            return error.errno == zmq.EAGAIN  # it has not read those before
        return True

    def close(self) -> None:
        """Frees the port."""
        with self._lock:
            self._socket.close()
            self._context.term()


class Respondent:
    """A process's side: a thread sleeps until the scheduler asks.

    Args:
        address: the relay's.
        secret: the job's.
        name: by which the scheduler asks for it.
        answer: what it has to tell; called in the thread.
    """

    def __init__(
        self, address: Address, secret: str, name: str, answer: Callable[[], bytes]
    ) -> None:
        self._answer = answer
        self._context = zmq.Context()
        self._socket = open_socket(self._context, address, secret)
        self._socket.setsockopt(zmq.ROUTING_ID, name.encode())
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(f"tcp://{address}")
        self._thread = threading.Thread(target=self._run, name="byteps-respondent", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while True:
                question = self._socket.recv_multipart()[-1]
                self._socket.send_multipart([question, self._answer()])
        except zmq.ContextTerminated:
            pass
        except Exception as error:
            _logger.debug("bpstop on the scheduler's host gets no more answers: %s", error)
        finally:
            self._socket.close()

    def close(self) -> None:
        """Ends the connection. Idempotent."""
        self._context.term()
        self._thread.join()
