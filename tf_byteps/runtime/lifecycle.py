"""Enters and leaves the job: `init`, `shutdown`, and the ends that nobody asks for.

This module holds the process's only `Session`.
"""

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from tf_byteps import logs, spawned
from tf_byteps.config import OPTIONS, Config
from tf_byteps.errors import BytePSError, ConfigError, RendezvousError, StartInterruptedError
from tf_byteps.rendezvous.member import Member
from tf_byteps.runtime.session import Session, uncaught_exception
from tf_byteps.wrapping import shorten_uncaught_errors

_logger = logging.getLogger("tf_byteps")


_lock = threading.RLock()
_session = None
_member = None  # of an elastic job: outlives `_session`
_is_failing = False  # an elastic job's function has called sys.exit with a code
_RETRY_SECONDS = 0.5


def init(config: Config | None = None, **overrides: Any) -> None:
    """Brings this process into its job as a worker, and waits until the job is complete.

    With nothing configured it is the only worker and opens no socket. Calling it again with the
    same configuration, or with none, does nothing.

    Args:
        config: a `tf_byteps.Config`. Default: read from the environment.
        **overrides: field values of `Config` that win over `config` or the environment.

    Raises:
        BytePSError: the configuration cannot be used, the other processes cannot be reached, or
            tf_byteps runs with another configuration.

    Example:

    >>> tf_byteps.init()
    >>> tf_byteps.rank(), tf_byteps.size()
    (0, 1)
    """
    global _session
    with _lock:
        if _session is not None and config is None and not overrides:
            return
        shorten_uncaught_errors()
        config = _resolve(config, overrides)
        if _session is not None:
            _check_same(config)
            return
        logs.configure(config)
        if config.distributed or _is_elastic(config):
            spawned.refuse()
        _session = _join_elastic_job(config) if _is_elastic(config) else Session(config)
        if _session.config.distributed:
            spawned.note_worker()


def _is_elastic(config: Config) -> bool:
    return config.elastic and config.role == "worker"


def _join_elastic_job(config: Config) -> Session:
    """Tries again when somebody is lost while the workers come together."""
    global _member
    deadline = time.monotonic() + config.elastic_timeout
    _member = _member or Member(config)
    try:
        while True:
            try:
                return Session(config, _member)
            except BytePSError as error:
                if _is_final(error) or time.monotonic() > deadline:
                    raise
                _logger.warning("%s. Trying again", error)
                time.sleep(_RETRY_SECONDS)
    except BaseException:  # the process ends, or does something else
        _member.close()
        _member = None
        raise


def _is_final(error: BytePSError) -> bool:
    """Whether a start that failed would fail again."""
    expected = isinstance(error, (ConfigError, RendezvousError))
    return expected and not isinstance(error, StartInterruptedError)


def shutdown() -> None:
    """Leaves the job: the other workers go on without an error if they do not need this one.

    Waits, at most `Config.shutdown_timeout` seconds, for all other workers to leave if this process
    hosts a server or the scheduler. Without a preceding `init` it does nothing.

    Example:

    >>> tf_byteps.shutdown()
    >>> tf_byteps.is_initialized()
    False
    """
    global _member
    with _lock:
        member, _member = _member, None
    if member is not None:
        member.say_done()
    try:
        leave_epoch()
    finally:
        if member is not None:
            member.close()


def note_exit(code: object) -> None:
    """Notes that `SystemExit` leaves the function which an elastic job trains in.

    Args:
        code: the exception's. Unless it stands for 0, the process ends without a goodbye.
    """
    global _is_failing
    _is_failing = code not in (None, 0)


def leave_epoch(lost: str = "") -> None:
    """Does what `shutdown` does, but an elastic job expects this process to come back.

    Args:
        lost: what this worker has lost so that it cannot go on, if the others do not know. They
            hear of it as of any loss.
    """
    global _session
    with _lock:
        stopping, _session = _session, None
        spawned.forget_worker()
    if stopping is not None:
        stopping.stop(lost)


def is_initialized() -> bool:
    """Whether this process is a worker now: after `init`, before `shutdown`.

    Returns:
        A boolean.

    Example:

    >>> if not tf_byteps.is_initialized():
    ...     tf_byteps.init()
    """
    return _session is not None


def start_timeline(path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """Begins to record when each part of each tensor goes through which stage, on this worker.

    For all of a job, `BYTEPS_TIMELINE` does it without a change to the program. The recording has
    at most `tf_byteps.timeline.MAX_PARTS` parts of tensors; what comes later is only counted.

    Args:
        path: where `stop_timeline`, or else `shutdown`, writes it. Every worker has its own file:
            "trace.json" becomes "trace.0.json" for rank 0; in a directory (one that exists, or a
            path that ends with "/") the file is "worker-0.json". A further recording of the process
            for the same path gets a number: "worker-0.2.json".
        mark_cycles: accepted for compatibility and not used: there are no cycles.

    Raises:
        BytePSError: `init` was not called, or a timeline is being recorded already.

    Example:

    >>> tf_byteps.start_timeline("timeline/")
    >>> train_step(images, labels)
    >>> tf_byteps.stop_timeline()
    'timeline/worker-0.json'
    """
    del mark_cycles
    with _lock:
        current("start_timeline").start_timeline(path)


def stop_timeline() -> str:
    """Ends the recording and writes it as a Chrome trace, for Perfetto and `timeline.read`.

    Exchanges that have not ended are left out.

    Returns:
        The path of this worker's file.

    Raises:
        BytePSError: no timeline is being recorded.
        OSError: the file cannot be written; the recording is lost.

    Example: see `start_timeline`.
    """
    with _lock:
        return current("stop_timeline").stop_timeline()


def _resolve(given: Config | None, overrides: Mapping[str, Any]) -> Config:
    if given is None:
        resolved = Config.from_environment(**overrides)
    elif isinstance(given, Config):
        resolved = given.replace(**overrides) if overrides else given
    else:
        raise BytePSError(f"config must be a tf_byteps.Config, but is {given!r}")
    if resolved.role in ("server", "scheduler"):
        raise BytePSError(
            f"{resolved.named('role')}, but only a worker trains: start this process with "
            f"python -m tf_byteps.{resolved.role}, or set DMLC_ROLE=worker"
        )
    return resolved


def _check_same(config: Config) -> None:
    running = _session.requested
    if config == running:
        return
    differences = [n for n in OPTIONS if getattr(config, n) != getattr(running, n)]
    raise BytePSError(
        "tf_byteps runs already with another configuration: "
        + "; ".join(
            f"{config.named(name)}, not {OPTIONS[name].shown(getattr(running, name))}"
            for name in differences
        )
        + ". Call tf_byteps.shutdown() first"
    )


def current(function: str) -> Session:
    if _session is None:
        raise BytePSError(
            f"tf_byteps.init() has not been called: {function}() is known only after it"
        )
    return _session


@atexit.register
def _leave_at_exit() -> None:
    """Says goodbye for programs that do not, unless they end because of an error.

    The interpreter sets sys.last_value when it prints an exception that nobody has caught, and does
    so before it runs atexit functions; unlike sys.excepthook nobody replaces that. Such a process
    ends without a goodbye, and the others learn that it has failed (protocol rule 21). In an
    interactive session every mistake at the prompt sets it: there it says nothing.

    An elastic job goes on until somebody is done. Nobody is who ends with another code than 0.
    """
    global _member
    running = _session
    if running is None or running.process != os.getpid():
        return
    failed = uncaught_exception() is not running.last_exception
    if _is_failing or (failed and not hasattr(sys, "ps1") and not sys.flags.interactive):
        running.abandon()
        return
    member, _member = _member, None
    shutdown()
    if member is not None:
        member.say_done_at_good_end()


def _forget_in_child() -> None:
    """A forked child is not a worker: the engine's threads and connections are its parent's."""
    global _session, _member, _lock
    if _session is not None and _session.metrics is not None:
        _session.metrics.forget()
    _session = _member = None
    _lock = threading.RLock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_forget_in_child)
