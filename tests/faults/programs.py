"""What the workers of the fault suite run: engine only, and every result is checked.

A worker's report is a dictionary: `rounds` exchanged, `error` and `later` (what the exchange said
that the fault ended, and the next one: code, message, and when, by the clock that all processes of
a machine share), `left` (seconds that `shutdown` took) and `back` (whether it could take part
again). A result that is not the sum ends the process with an AssertionError.
"""

import functools
import os
import time

import numpy as np

import tf_byteps
from tests.cluster import wait_until
from tf_byteps import _engine
from tf_byteps.errors import BytePSError

SECONDS = 30
_LARGE = 4 << 20  # elements; one part, see suite.py


def endure(phase, seconds_at_most):
    """Works in the given phase until a fault ends it, leaves, and comes back in place.

    Args:
        phase: one of `PHASES`.
        seconds_at_most: how long to work if no fault comes.
    """
    if phase == "rendezvous":
        return _start_in_spite_of_a_fault()
    report = _work_until_a_fault(_PHASES[phase], seconds_at_most)
    begin = time.monotonic()
    tf_byteps.shutdown()
    report["left"] = time.monotonic() - begin
    if report["error"]:
        report["back"] = come_back()["back"]
    return report


def go_on(phase, seconds):
    """Works in the given phase for so long, all workers for the same number of rounds.

    They are counted, and `longest` is the longest that one took.
    """
    tf_byteps.init()
    _exchange("before", 1000)
    for elements in (_LARGE, 100_000, 10):
        _sum(elements)
    print("working", flush=True)
    rounds, longest, last = 0, 0.0, time.monotonic()
    deadline = last + seconds
    while True:
        _WITHOUT_END[phase](rounds)
        rounds += 1
        is_over = np.array([time.monotonic() > deadline], np.float32)
        stops = _engine.exchange(is_over, dtype="float32", name="is over").wait(SECONDS)[0] > 0
        begin, last = last, time.monotonic()
        longest = max(longest, last - begin)
        if stops:
            break
    tf_byteps.shutdown()
    return {"rounds": rounds, "error": None, "last": last, "longest": longest}


def come_back():
    """Takes part in the job that follows: what a replacement runs, too."""
    tf_byteps.init()
    for number in range(3):
        _exchange(f"again {number}", 1000)
    tf_byteps.shutdown()
    return {"back": True}


def leave(delay):
    """All but the last worker leave at once, and the last after a while."""
    tf_byteps.init()
    _exchange("before", 1000)
    print("working", flush=True)
    if tf_byteps.rank() == tf_byteps.size() - 1:
        time.sleep(delay)
    begin = time.monotonic()
    tf_byteps.shutdown()
    return {"rounds": 1, "left": time.monotonic() - begin, "end": time.monotonic()}


def _start_in_spite_of_a_fault():
    """The last worker comes when it is told to; what is lost meanwhile is replaced."""
    print("working", flush=True)
    if os.environ["BYTEPS_GLOBAL_RANK"] == str(int(os.environ["BYTEPS_GLOBAL_SIZE"]) - 1):
        while not os.path.exists(os.environ["TESTS_GO_FILE"]):
            time.sleep(0.05)
    errors = []
    while len(errors) < 20:
        try:
            return {"errors": errors, **come_back()}
        except (BytePSError, _engine.EngineError) as error:  # somebody was lost, and is replaced
            errors.append(str(error))
            tf_byteps.shutdown()
            time.sleep(0.5)
    return {"errors": errors, "back": False}


def _work_until_a_fault(work, seconds_at_most):
    tf_byteps.init()
    _exchange("before", 1000)
    for elements in (_LARGE, 100_000, 10):
        _sum(elements)  # not later, when time is measured
    print("working", flush=True)
    report = {"rounds": 0, "error": None, "later": None}
    deadline = time.monotonic() + seconds_at_most
    try:
        while time.monotonic() < deadline:
            work(report["rounds"])
            report["rounds"] += 1
    except _engine.EngineError as error:
        report["error"] = [error.code, str(error), time.monotonic()]
        report["later"] = _later()
    return report


def _later():
    try:
        _exchange("before", 1000)
    except _engine.EngineError as error:
        return [error.code, str(error), time.monotonic()]
    return None


def _declare(number):
    """Tensors that nobody has used before."""
    names = [f"new {number} {index}" for index in range(20)]
    for handle, expected in [_start(name, 10) for name in names]:
        _check(handle, expected)


def _send(number):
    """A tensor that is in flight most of the time."""
    _exchange("large", _LARGE)


def _wait(number):
    """A round that stays open: the last worker sends when it is too late."""
    if tf_byteps.rank() == tf_byteps.size() - 1:
        wait_until(_engine.worker_failure, SECONDS)
    _exchange("open", 100_000)


def _lag(number):
    """Rounds that are open most of the time: the last worker is late."""
    if tf_byteps.rank() == tf_byteps.size() - 1:
        time.sleep(0.2)
    _exchange("open", 100_000)


_PHASES = {"declare": _declare, "mid-frame": _send, "mid-round": _wait}
_WITHOUT_END = {"declare": _declare, "mid-frame": _send, "mid-round": _lag}
PHASES = ("rendezvous", *_PHASES, "shutdown")


@functools.cache
def _values(rank, elements):
    return (np.arange(elements) % 1000 + rank).astype(np.float32)


@functools.cache
def _sum(elements):
    return sum(_values(rank, elements) for rank in range(tf_byteps.size()))


def _start(name, elements):
    handle = _engine.exchange(_values(tf_byteps.rank(), elements), dtype="float32", name=name)
    return handle, _sum(elements)


def _check(handle, expected):
    np.testing.assert_array_equal(handle.wait(SECONDS), expected)


def _exchange(name, elements):
    _check(*_start(name, elements))
