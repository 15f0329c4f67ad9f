"""Who reads metrics slowly, or asks for them slowly, keeps nobody from them."""

import contextlib
import itertools
import socket
import threading

import pytest

from tf_byteps.metrics.listener import Listener

_SLOW = 8
_SECONDS = 60
_PAUSE_SECONDS = 0.2


@pytest.fixture
def where():
    listener = Listener(("127.0.0.1", 0), {"/metrics": [], "/process": []}, job=1)
    yield listener.server_address
    listener.close()


@contextlib.contextmanager
def _slow(where, count):
    """Connections over which requests come byte by byte, without end; their threads' events, which
    are set when the other side has ended one."""
    ended, is_over = [threading.Event() for _ in range(count)], threading.Event()

    def ask(its_end):
        with socket.create_connection(where, _SECONDS) as peer, contextlib.suppress(OSError):
            peer.sendall(b"GET /metrics HTTP/1.0\r\nX: ")
            begun.release()
            peer.settimeout(_PAUSE_SECONDS)
            while not is_over.is_set():
                peer.sendall(b"x")
                with contextlib.suppress(TimeoutError):
                    if not peer.recv(100):
                        break
        its_end.set()

    begun = threading.Semaphore(0)
    threads = [threading.Thread(target=ask, args=[each]) for each in ended]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert begun.acquire(timeout=_SECONDS)
    yield ended
    is_over.set()
    for thread in threads:
        thread.join()


def _scrape(where):
    with socket.create_connection(where, _SECONDS) as peer:
        peer.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        chunks = iter(lambda: peer.recv(1 << 16), b"")
        return b"".join(itertools.chain(chunks))


def test_slow_requests_keep_nobody_from_an_answer(where):
    assert _scrape(where).startswith(b"HTTP/1.0 200 OK")  # what answers has been imported
    with _slow(where, _SLOW) as ended:
        for _ in range(2 * _SLOW):
            assert _scrape(where).startswith(b"HTTP/1.0 200 OK")
        assert any(each.wait(_SECONDS) for each in ended), "the oldest made room"


def test_a_slow_request_ends(where):
    """However regularly its bytes come."""
    with _slow(where, 1) as (ended,):
        assert ended.wait(_SECONDS)


def test_a_request_without_end_is_refused(where):
    with socket.create_connection(where, _SECONDS) as peer, contextlib.suppress(OSError):
        for _ in range(100):
            peer.sendall(b"X: " + b"x" * 10_000)
        assert peer.recv(100) == b""
    assert _scrape(where).startswith(b"HTTP/1.0 200 OK")
