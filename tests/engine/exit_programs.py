"""What the workers of test_exits.py run: each ends in its own way."""

import os
import signal
import sys
import threading
import time

import numpy as np

import tf_byteps
from tests.cluster import wait_until
from tf_byteps import _engine

_kept = []
# Ways that the others are told of, and how long that may take on a busy machine.
_FAILURES = ("exception", "interrupt")
_FAILURE_SECONDS = 20


def ends(how, first, seconds):
    """Rank `first` ends in a way, the others return some time later."""
    tf_byteps.init()
    assert _exchange("together").wait(30)[0] == tf_byteps.size()
    if tf_byteps.rank() == first:
        return _WAYS[how]()
    time.sleep(seconds)
    if how in _FAILURES:
        wait_until(_engine.worker_failure, _FAILURE_SECONDS)
    return tf_byteps.is_initialized() and _engine.worker_failure()


def _exchange(name):
    return _engine.exchange(np.ones(1000, np.float32), name=name)


def _pending():
    """An exchange that nobody answers is in flight when the interpreter goes away."""
    _kept.append(_exchange("alone"))


def _waiting_thread():
    """A daemon thread waits for such an exchange."""
    before = _started()
    threading.Thread(target=lambda: _exchange("alone").wait(60), daemon=True).start()
    wait_until(lambda: _started() > before)


def _started():
    return _engine.worker_counters()["started_exchanges"]


def _exit_code():
    sys.exit(3)


def _two_threads():
    """Several threads shut down at once, and again."""
    threads = [threading.Thread(target=tf_byteps.shutdown) for _ in range(3)]
    for thread in threads:
        thread.start()
    tf_byteps.shutdown()
    for thread in threads:
        thread.join()
    tf_byteps.shutdown()


def _exception_with_pending():
    _kept.append(_exchange("alone"))
    raise ValueError("a bug")


def _interrupted():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)


_WAYS = {
    "pending": _pending,
    "waiting thread": _waiting_thread,
    "exit code": _exit_code,
    "two threads": _two_threads,
    "exception": _exception_with_pending,
    "interrupt": _interrupted,
}
