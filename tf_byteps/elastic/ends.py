"""What an error that ends a training means for an elastic job. Only this module decides it.

An exchange ends with UNAVAILABLE if a process is lost, or what only a lost one had. Other workers
may end theirs before they hear of that: CANCELLED if a worker gives the round up because of its
error, FAILED_PRECONDITION if it is further already, or has left. So these two wait for the news.
"""

import enum
import time

from tf_byteps import _engine, runtime
from tf_byteps.elastic import frameworks
from tf_byteps.errors import ExchangeError, is_on_all_workers

_LOST = "UNAVAILABLE"
_OTHERS_KNOW_WHY = ("CANCELLED", "FAILED_PRECONDITION")

# In seconds. The scheduler tells all workers of a change at once, but not all hear it at once.
_UNTIL_HEARD = 5.0
_BETWEEN_LOOKS = 0.02


class End(enum.Enum):
    """What an error is about."""

    LOSS = "a process is lost"
    CHANGE = "another worker has left the exchange to meet with those that come"
    FAULT = "something else"


def end_of(error: BaseException, goes_back: bool) -> tuple[End, str]:
    """Decides what an error is about. May take some seconds.

    Args:
        error: what a training has raised.
        goes_back: whether all stop together at a commit when some workers are to come. If not,
            each worker leaves after its own step, and others may wait for it in an exchange.

    Returns:
        What it is, and which process is lost or how the workers change, in a sentence.
    """
    code = _code_of(error)
    if code == _LOST:
        return End.LOSS, _engine.worker_failure() or str(error).partition("\n")[0]
    if code and (failure := _engine.worker_failure()):
        return End.LOSS, failure
    is_elastic = runtime.is_initialized() and runtime.config().elastic
    # Where nobody goes back, `fit` marks an error that is a change of the workers, too.
    is_known = goes_back and is_on_all_workers(error)
    if code in _OTHERS_KNOW_WHY and is_elastic and not is_known:
        return _await_reason(goes_back)
    return End.FAULT, ""


def _code_of(error: BaseException) -> str:
    """The engine's code of an error about an exchange; "" of any other one."""
    if isinstance(error, (_engine.EngineError, ExchangeError)):
        return error.code
    if not isinstance(error, Exception):
        return ""
    return next(filter(None, (each.code_of(error) for each in frameworks.in_use())), "")


def _await_reason(goes_back: bool) -> tuple[End, str]:
    deadline = time.monotonic() + _UNTIL_HEARD
    while time.monotonic() < deadline:
        if failure := _engine.worker_failure():
            return End.LOSS, failure
        if not goes_back and (reason := runtime.coming_change()):
            return End.CHANGE, reason
        time.sleep(_BETWEEN_LOOKS)
    return End.FAULT, ""
