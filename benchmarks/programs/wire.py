"""Measures what TCP carries between two hosts: payload rate, and the time there and back."""

import socket
import threading
import time

_CHUNK_BYTES = 1 << 18
_SETTLING_SECONDS = 0.3  # slow start, and the bucket's first burst
_TIMEOUT = 30
_connection = None
_listener = None


def listen():
    """Returns the port."""
    global _listener
    _listener = socket.create_server(("", 0))
    _listener.settimeout(_TIMEOUT)
    return _listener.getsockname()[1]


def connect(address, port):
    """One side connects; for the one that listens, address is None."""
    global _connection
    if address is None:
        _connection = _listener.accept()[0]
        _listener.close()
    else:
        _connection = socket.create_connection((address, port), timeout=_TIMEOUT)
    _connection.settimeout(_TIMEOUT)
    _connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _send(seconds):
    data = memoryview(bytearray(_CHUNK_BYTES))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        _connection.sendall(data)


def _receive(seconds):
    """Bytes a second, after the start."""
    buffer = bytearray(_CHUNK_BYTES)
    start = time.monotonic()
    begin, received, now = None, 0, start
    while now < start + seconds - 0.1:
        count = _connection.recv_into(buffer)
        now = time.monotonic()
        if begin is not None:
            received += count
        elif now > start + _SETTLING_SECONDS:
            begin = now
    return received / (now - begin)


def _drain():
    """Reads what is still in flight, until nothing comes."""
    buffer = bytearray(_CHUNK_BYTES)
    _connection.settimeout(0.4)
    try:
        while _connection.recv_into(buffer):
            pass
    except TimeoutError:
        pass
    _connection.settimeout(_TIMEOUT)


def transfer(send, receive, seconds):
    """Sends, receives, or both for a while; returns the received bytes a second, or None."""
    sender = threading.Thread(target=_send, args=(seconds,))
    if send:
        sender.start()
    rate = _receive(seconds) if receive else None
    if receive:
        _drain()
    if send:
        sender.join()
    return rate


def there_and_back(first, count):
    """Seconds of each round trip of 64 bytes."""
    trips = []
    for _ in range(count):
        begin = time.perf_counter()
        if first:
            _connection.sendall(bytes(64))
        _connection.recv(64, socket.MSG_WAITALL)
        if not first:
            _connection.sendall(bytes(64))
        trips.append(time.perf_counter() - begin)
    return trips
