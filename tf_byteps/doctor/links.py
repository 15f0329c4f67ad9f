"""A link between two hosts: time to connect, latency, and the rate of both directions.

Plain TCP, as the engine's, between numeric addresses. A host listens on a free port while the
examination lasts, and serves only those that send its token first. Every wait has an end.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import ipaddress
import secrets
import socket
import statistics
import struct
import threading
import time
from collections.abc import Sequence

TOKEN_BYTES = 32
_CONNECT_SECONDS = 3.0
# From the planned end of a measurement to giving it up.
_SLACK_SECONDS = 3.0
_ROUND_TRIPS = 50
_LATENCY_SECONDS = 0.5  # of all round trips together
_PING_BYTES = 64
_PIECE_BYTES = 1 << 18
_MOST_SECONDS = 2.0  # of one direction, whatever a peer asks for
_MOST_STRANGERS = 16  # at a time that have not sent the token; a newer one ends the oldest
_PAUSE_SECONDS = 0.1  # for lack of descriptors

_REQUEST = struct.Struct("!cd")  # what to do, for how many seconds
_RESULT = struct.Struct("!Qd")  # bytes, seconds
_PING, _UP, _DOWN = b"p", b"u", b"d"


class Listener:
    """Serves the measurements of other hosts, in threads of its own, until the process ends.

    Args:
        address: numeric, of this host.
        ports: it listens at the first that is free; 0: any.

    Raises:
        OSError: nothing can listen there.
    """

    def __init__(self, address: str, ports: Sequence[int] = (0,)) -> None:
        family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
        for port in ports:
            try:
                self._socket = socket.create_server((address, port), family=family)
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE or port == ports[-1]:
                    raise
        self.port: int = self._socket.getsockname()[1]
        self.token = secrets.token_bytes(TOKEN_BYTES)
        self._lock = threading.Lock()
        self._strangers: dict[socket.socket, None] = {}  # the oldest first
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:  # it has gone again; or there are no descriptors, and it waits
                time.sleep(_PAUSE_SECONDS)
                continue
            self._make_room_for(peer)
            try:
                threading.Thread(target=self._serve, args=(peer,), daemon=True).start()
            except RuntimeError:  # no thread can be started
                self._forget(peer)
                peer.close()

    def _make_room_for(self, peer: socket.socket) -> None:
        with self._lock:
            if len(self._strangers) >= _MOST_STRANGERS:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread wakes, and closes it
            self._strangers[peer] = None

    def _forget(self, peer: socket.socket) -> None:
        with self._lock:
            self._strangers.pop(peer, None)

    def _is_known(self, peer: socket.socket) -> bool:
        try:
            return hmac.compare_digest(_receive(peer, TOKEN_BYTES), self.token)
        finally:
            self._forget(peer)

    def _serve(self, peer: socket.socket) -> None:
        # A stranger, or a link that broke: the other end says what it has seen.
        with peer, contextlib.suppress(OSError):
            peer.settimeout(_SLACK_SECONDS)
            if not self._is_known(peer):
                return
            kind, seconds = _REQUEST.unpack(_receive(peer, _REQUEST.size))
            seconds = min(seconds, _MOST_SECONDS)
            peer.sendall(kind)
            if kind == _PING:
                _echo(peer)
            elif kind == _UP:
                peer.sendall(_RESULT.pack(*_drain(peer, seconds)))
                _until_closed(peer)
            elif kind == _DOWN:
                _fill(peer, seconds + _SLACK_SECONDS)


def measure(address: str, port: int, token: bytes, seconds: float) -> dict[str, float]:
    """Measures the link from here to a `Listener`.

    Args:
        address: numeric.
        port: the listener's.
        token: the listener's.
        seconds: how long each direction is measured.

    Raises:
        OSError: the link cannot be used.

    Returns:
        "connect_seconds", "latency_seconds" (half of the median round trip), "rate" from here
        to there and "rate_back", in bytes per second, as the receiver counts them.

    Example:
        measure("10.0.0.2", 41234, token, 0.5)["rate"]  # 1.17e9
    """
    began = time.perf_counter()
    with socket.create_connection((address, port), _CONNECT_SECONDS) as peer:
        connect_seconds = time.perf_counter() - began
        _begin(peer, token, _PING, seconds)
        latency = _round_trip(peer) / 2
    with socket.create_connection((address, port), _CONNECT_SECONDS) as peer:
        _begin(peer, token, _UP, seconds)
        there = _push(peer, seconds)
    with socket.create_connection((address, port), _CONNECT_SECONDS) as peer:
        _begin(peer, token, _DOWN, seconds)
        back = _drain(peer, seconds)
    return {
        "connect_seconds": connect_seconds,
        "latency_seconds": latency,
        "rate": _quotient(*there),
        "rate_back": _quotient(*back),
    }


def rounds(hosts: int) -> list[list[tuple[int, int]]]:
    """Which links are measured, and which at the same time.

    Each host to host 0, and a ring over all hosts; no host takes part in two links at once.

    Args:
        hosts: their number.

    Returns:
        Lists of (from, to): one after the other, all links of a list together.

    Example:
        rounds(3)  # [[(1, 0)], [(2, 0)], [(1, 2)]]
    """
    wanted = [(host, 0) for host in range(1, hosts)]
    wanted += [(host, host + 1) for host in range(1, hosts - 1)]  # 0 to 1 and back are there
    found: list[list[tuple[int, int]]] = []
    for link in wanted:
        for together in found:
            if not any(host in other for other in together for host in link):
                together.append(link)
                break
        else:
            found.append([link])
    return found


def _begin(peer: socket.socket, token: bytes, kind: bytes, seconds: float) -> None:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.settimeout(seconds + _SLACK_SECONDS)
    peer.sendall(token + _REQUEST.pack(kind, seconds))
    if _receive(peer, 1) != kind:
        raise OSError("another program answers there")


def _round_trip(peer: socket.socket) -> float:
    """The median, in seconds. The first ones may wake somebody up."""
    times: list[float] = []
    end = time.monotonic() + _LATENCY_SECONDS
    while len(times) < _ROUND_TRIPS and (not times or time.monotonic() < end):
        began = time.perf_counter()
        peer.sendall(bytes(_PING_BYTES))
        _receive(peer, _PING_BYTES)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _echo(peer: socket.socket) -> None:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := peer.recv(_PING_BYTES):
        peer.sendall(data)


def _push(peer: socket.socket, seconds: float) -> tuple[int, float]:
    """Sends until the receiver has counted enough; returns what it says."""
    answer: list[bytes] = []

    def listen() -> None:
        with contextlib.suppress(OSError):
            answer.append(_receive(peer, _RESULT.size))
        with contextlib.suppress(OSError):
            peer.shutdown(socket.SHUT_RDWR)  # ends what is being sent

    reader = threading.Thread(target=listen, daemon=True)
    reader.start()
    with contextlib.suppress(OSError):
        _fill(peer, seconds + _SLACK_SECONDS)
    reader.join(_SLACK_SECONDS)
    if not answer:
        raise OSError("the connection broke while data was sent")
    return _RESULT.unpack(answer[0])


def _fill(peer: socket.socket, seconds: float) -> None:
    """Sends until the receiver closes, at most so long."""
    data, end = bytes(_PIECE_BYTES), time.monotonic() + seconds
    while time.monotonic() < end:
        peer.sendall(data)


def _drain(peer: socket.socket, seconds: float) -> tuple[int, float]:
    """Receives for so long; returns bytes and seconds, both after the first arrival."""
    room, count = bytearray(_PIECE_BYTES), 0
    if not peer.recv_into(room):
        raise OSError("the connection was closed before all data had come")
    began = last = time.perf_counter()
    while last - began < seconds:
        received = peer.recv_into(room)
        if not received:
            break
        count += received
        last = time.perf_counter()
    return count, last - began


def _until_closed(peer: socket.socket) -> None:
    room, end = bytearray(_PIECE_BYTES), time.monotonic() + _SLACK_SECONDS
    while time.monotonic() < end and peer.recv_into(room):
        pass


def _receive(peer: socket.socket, size: int) -> bytes:
    """Exactly so many bytes."""
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        if not more:
            raise OSError("the connection was closed by the other end")
        data += more
    return data


def _quotient(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
