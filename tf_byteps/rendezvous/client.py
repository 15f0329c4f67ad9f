"""The side of rendezvous of those that join: workers and servers."""

from __future__ import annotations

import logging
import math
import os
import secrets
import socket
import time
import typing
from collections.abc import Callable

import zmq

import tf_byteps
from tf_byteps import logs
from tf_byteps.errors import Dismissed, RendezvousError, StartInterruptedError
from tf_byteps.gpus import own_gpu
from tf_byteps.rendezvous import messages
from tf_byteps.rendezvous.host import host_id, numeric_addresses
from tf_byteps.rendezvous.secret import curve_keys, job_secret

if typing.TYPE_CHECKING:
    from tf_byteps.config import Config

# How often to ask without a place in the job; with one, once in a heartbeat interval.
_JOIN_SECONDS = 1.0
# A scheduler that does not answer may start later, or be at another address: said soon.
_FIRST_LOG_SECONDS = 10.0
_USUAL_SECONDS = 60.0  # of a start
_LOG_SECONDS = 30.0
_PROBE_SECONDS = 2.0
_RECONNECT_MILLISECONDS = 250

_logger = logging.getLogger("tf_byteps")


def join(
    config: Config,
    server_endpoint: messages.Address | None = None,
    start_server: Callable[[messages.Book, int], None] | None = None,
    scheduler_address: messages.Address | None = None,
    answer_timeout: float | None = None,
    member: str | None = None,
    metrics: messages.Address | None = None,
) -> tuple[messages.Book, int]:
    """Takes part in a job: returns when all are there and all servers run.

    Args:
        config: this process's `Config`; its role is worker or server.
        server_endpoint: `Address` of the server that this process hosts, if it does.
        start_server: called with the `Book` and the server's rank when all are there.
        scheduler_address: `Address` of the scheduler. Default: the configured one.
        answer_timeout: seconds until the scheduler must have answered. Default: the configured ones
            for the whole rendezvous, as a machine with rank 0 may start last. `math.inf`: however
            long all of it takes, and without a word.
        member: a worker's name in an elastic job.
        metrics: `Address` at which this process serves its metrics, if it does.

    Returns:
        A worker's `Book` and rank; a server's `Book` and rank among servers.

    Raises:
        StartInterruptedError: the scheduler, or another process while the job began, was lost.
        RendezvousError: the scheduler cannot be reached or refuses this process, or not all came
            in time.
        Dismissed: an elastic job goes on, or has ended, without this process.
    """
    address = scheduler_address or messages.Address(
        config.scheduler_host or "", config.scheduler_port or 0
    )
    request = _request(config, server_endpoint, member, metrics)
    answer_timeout = answer_timeout or config.rendezvous_timeout
    last_stage = "worker" if config.role == "worker" else "server"
    book = None
    with _Line(address, job_secret(config)) as line:
        try:
            while True:
                assigned = _wait_for_assignment(line, request, config, answer_timeout)
                book = assigned.book or book
                if book is None:
                    raise RendezvousError(f"the scheduler at {line.address} sent no address book")
                if assigned.stage == "server":
                    start_server(book, assigned.rank)
                line.send(messages.Ready(request.participant, assigned.stage))
                if assigned.stage == last_stage:
                    return book, assigned.rank
        except BaseException:  # Ctrl-C, too: the others should not wait for this process
            line.send(messages.Leave(request.participant))
            raise


def _request(
    config: Config,
    server_endpoint: messages.Address | None,
    member: str | None = None,
    metrics: messages.Address | None = None,
) -> messages.Join:
    return messages.Join(
        participant=secrets.token_hex(16),
        package_version=tf_byteps.__version__,
        role=config.role,
        process=f"{socket.gethostname()}, process {os.getpid()}",
        job_id=config.job_id,
        rank=config.rank if config.role == "worker" else None,
        size=config.size,
        server_id=config.server_id,
        num_servers=config.num_servers,
        host_id=host_id(config),
        server_endpoint=server_endpoint,
        options=config.stated_values(),
        gpu=own_gpu(os.environ) if config.role == "worker" else None,
        member=member,
        metrics=metrics,
    )


def _wait_for_assignment(
    line: _Line, request: messages.Join, config: Config, answer_timeout: float
) -> messages.Assigned:
    """Repeats the request until the scheduler has an assignment."""
    begin = next_request = time.monotonic()
    next_log = begin + _FIRST_LOG_SECONDS
    # Since then a request is without an answer; a process that was stopped itself has sent none.
    asked = None
    interval, progress = min(_JOIN_SECONDS, config.heartbeat_interval), ""
    while True:
        if time.monotonic() >= next_request:
            line.send(request)
            asked = asked or time.monotonic()
            next_request = time.monotonic() + interval
        message = line.receive(max(0.0, next_request - time.monotonic()))
        now = time.monotonic()
        if message is not None:
            asked = None
            progress = _read_answer(message, line, config)
            if isinstance(message, messages.Assigned):
                return message
            if isinstance(message, messages.Progress) and message.admitted:
                interval = config.heartbeat_interval
                next_request = now + interval
        silent = now - asked if asked else 0.0
        _check_timeout(line, config, answer_timeout, now - begin, silent, progress)
        if now > next_log and answer_timeout < math.inf:
            next_log = now + _LOG_SECONDS
            _logger.log(
                _level(config, now - begin, progress),
                "waiting for the job to begin: %s",
                progress or _no_answer(line),
                extra=logs.event("job_awaited"),
            )


def _level(config: Config, waited: float, progress: str) -> int:
    """bpslaunch sees whether processes run: while they import TensorFlow, nobody need worry."""
    by_launcher = config.job_id is not None and (config.global_size is not None or config.elastic)
    is_usual = by_launcher and bool(progress) and waited < _USUAL_SECONDS
    return logging.INFO if is_usual else logging.WARNING


def _read_answer(message: messages.Message, line: _Line, config: Config) -> str:
    """The progress that an answer tells of; raises if it ends the waiting."""
    if isinstance(message, messages.Refused):
        raise RendezvousError(
            f"the scheduler at {line.address} refuses this {config.role}: {message.reason}"
        )
    if isinstance(message, messages.Dismissed):
        _logger.warning("this %s ends: %s", config.role, message.reason)
        raise Dismissed(message.reason)
    if isinstance(message, messages.Failed):
        error = StartInterruptedError if message.interrupted else RendezvousError
        raise error(f"the job did not start: {message.reason}")
    return message.text if isinstance(message, messages.Progress) else ""


def _check_timeout(
    line: _Line, config: Config, answer_timeout: float, waited: float, silent: float, progress: str
) -> None:
    if not line.answered and waited > answer_timeout:
        raise RendezvousError(
            f"cannot reach the scheduler at {line.address}: no answer in {waited:.0f} s to "
            f"{line.sent} requests ({_diagnose(line.address)}). {_advice(line)}; "
            f"BYTEPS_RENDEZVOUS_TIMEOUT sets how long to try"
        )
    if line.answered and silent > config.heartbeat_timeout:
        raise StartInterruptedError(
            f"the scheduler at {line.address} has not answered for {silent:.0f} s "
            f"({_diagnose(line.address)}); before, {progress or 'the job was starting'}"
        )
    # How long a newcomer waits for a commit is not known, and the scheduler watches over the rest.
    if waited > config.rendezvous_timeout and not config.elastic and answer_timeout < math.inf:
        raise RendezvousError(
            f"the job did not begin in {waited:.0f} s: {progress or _no_answer(line)}. "
            f"BYTEPS_RENDEZVOUS_TIMEOUT sets how long to wait"
        )


def _no_answer(line: _Line) -> str:
    return f"no answer from {line.address} ({_diagnose(line.address)}). {_advice(line)}"


def _advice(line: _Line) -> str:
    return (
        f"Check that the scheduler runs, that DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT (or "
        f"TF_CONFIG) name its address, and that its BYTEPS_JOB_SECRET is the same "
        f"({'one is' if line.has_secret else 'none is'} set here)"
    )


def _diagnose(address: messages.Address) -> str:
    """What a plain connection to the address says."""
    try:
        with socket.create_connection((address.host, address.port), _PROBE_SECONDS):
            return "something listens there, but does not answer as a tf_byteps scheduler"
    except socket.gaierror as error:
        return f"the name {address.host!r} cannot be resolved: {error.strerror}"
    except TimeoutError:
        return f"a TCP connection was not accepted within {_PROBE_SECONDS:g} s"
    except OSError as error:
        return f"TCP: {error.strerror}"


def open_socket(context: zmq.Context, address: messages.Address, secret: str | None) -> zmq.Socket:
    """A socket that is about to be connected to the scheduler at `address`."""
    opened = context.socket(zmq.DEALER)
    # With it, ZeroMQ tries a name's IPv6 address only.
    addresses = numeric_addresses(address.host)
    opened.setsockopt(zmq.IPV6, int(bool(addresses) and ":" in addresses[0]))
    opened.setsockopt(zmq.MAXMSGSIZE, messages.MAX_BYTES)
    if secret is not None:
        opened.curve_serverkey = curve_keys(secret, "scheduler")[0]
        opened.curve_publickey, opened.curve_secretkey = curve_keys(secret, "participant")
    opened.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MILLISECONDS)
    return opened


class _Line:
    """A connection to the scheduler."""

    def __init__(self, address: messages.Address, secret: str | None = None) -> None:
        self.address = address
        self.has_secret = secret is not None
        self.answered = False
        self.sent = 0
        self._context = zmq.Context()
        self._socket = open_socket(self._context, address, secret)
        self._socket.setsockopt(zmq.SNDHWM, 4)  # requests that nobody reads need no queue
        self._socket.connect(f"tcp://{address}")

    def __enter__(self) -> _Line:
        return self

    def __exit__(self, *_: object) -> None:
        # Without an answer nobody listens, and the last words have nobody to wait for.
        self._socket.close(linger=2000 if self.answered else 0)
        self._context.term()

    def send(self, message: messages.Message) -> None:
        try:
            self._socket.send(messages.encode(message), zmq.NOBLOCK)
            self.sent += 1
        except zmq.Again:
            pass  # the queue is full of requests already; _check_timeout ends the waiting

    def receive(self, timeout: float) -> messages.Message | None:
        """The next message, or None after `timeout` seconds."""
        if not self._socket.poll(int(timeout * 1000)):
            return None
        self.answered = True
        return messages.decode(self._socket.recv())
