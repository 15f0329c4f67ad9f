"""Workers of tests, without what tests themselves import."""

import contextlib
import os
import sys
import threading

import numpy as np
import psutil

import tf_byteps
from tests.cluster import wait_until
from tf_byteps import _engine
from tf_byteps.metrics.local import local_jobs

SECONDS = 40
REQUEST = b"GET /process HTTP/1.0\r\n\r\n"


def sockets_of(process):
    """All of the job of a process, once it has opened its own."""
    found = lambda: [s for s in local_jobs().values() if process in [x.process for x in s]]  # noqa: E731
    wait_until(found, SECONDS)
    return found()[0]


def ask(where):
    """Everything that comes after a request; b"" if the connection is closed."""
    answer = b""
    with contextlib.suppress(ConnectionError), where.connect() as connection:
        connection.settimeout(SECONDS)
        connection.sendall(REQUEST)
        while data := connection.recv(1 << 16):
            answer += data
    return answer


def modules_and_threads():
    """What a worker has loaded before and after the first question, and its threads."""
    tf_byteps.init()
    _engine.exchange(np.ones(3, np.float32), name="x").wait(SECONDS)
    names = "prometheus_client", "wsgiref", "http.server"
    before = [name for name in names if name in sys.modules]
    threads = [t.name for t in threading.enumerate() if t.name.startswith("byteps-metrics")]
    inet = [c.laddr.port for c in psutil.Process().net_connections("inet") if c.status == "LISTEN"]
    own = next(s for s in sockets_of(os.getpid()) if s.process == os.getpid())
    answer = ask(own)
    after = [name for name in names if name in sys.modules]
    tf_byteps.shutdown()
    return [before, after, threads, inet, b"tf_byteps_credit_bytes{" in answer]


def fork_and_leave():
    """Forks, leaves the job while the child lives, and joins again; whether it listens each time.

    It could not if the child held the name.
    """
    tf_byteps.init()
    own = next(s for s in sockets_of(os.getpid()) if s.process == os.getpid())
    readable, writable = os.pipe()
    if os.fork() == 0:
        os.close(writable)
        os.read(readable, 1)
        os._exit(0)
    was_there = own.is_genuine
    tf_byteps.shutdown()
    is_there = own.is_genuine
    tf_byteps.init()
    is_back = own.is_genuine
    tf_byteps.shutdown()
    os.close(writable)
    os.wait()
    return [was_there, is_there, is_back]
