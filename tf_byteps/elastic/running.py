"""Runs a training function again and again until it has ended, with whoever is there."""

import functools
import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

from tf_byteps import _engine, logs, runtime
from tf_byteps.elastic import frameworks
from tf_byteps.elastic.ends import End, end_of
from tf_byteps.elastic.states import HostsUpdatedInterrupt, State
from tf_byteps.exchange.object_gather import gather_objects

_logger = logging.getLogger("tf_byteps")

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def run(function: FunctionT) -> FunctionT:
    """Makes a training function go on when workers are lost, come or leave. A decorator.

    The function is called once the workers are together and have rank 0's state. When one is lost,
    the others go back to their last commit; when some are to come or to leave, all stop at a
    commit. Then ranks are given anew: who stays keeps its order, new workers are last, so that rank
    0 has a state. The function is called again, and reads from its state where to go on.

    Datasets that shuffle belong inside the function, models and the state outside: see
    docs/elastic.md.

    Args:
        function: its first argument is a `State`.

    Returns:
        A function with the same arguments, which returns what `function` returns in the end. It
        raises `SystemExit` on a worker that is to leave for good.

    Raises:
        tf_byteps.BytePSError: there were too few workers for too long.

    Example: see `KerasState`.
    """

    @functools.wraps(function)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        if not runtime.is_initialized():
            runtime.init()
        has_begun = False
        while True:
            lost = ""
            try:
                _begin_epoch(is_first=not has_begun)
                state.sync()
                has_begun = True
                runtime.note_exit(code=0)
                return function(state, *args, **kwargs)
            except SystemExit as end:
                runtime.note_exit(end.code)
                raise
            except HostsUpdatedInterrupt as change:
                _note_change(str(change))
            except Exception as error:
                end, reason = end_of(error, state.goes_back)
                if end is End.FAULT:
                    raise
                if end is End.CHANGE:
                    _note_change(reason)
                else:
                    lost = reason
                    _note_loss(lost, state.goes_back)
                    state.restore()
            _come_together_again(lost)
            state.on_reset()

    return cast(FunctionT, wrapper)


def _note_change(reason: str) -> None:
    _logger.warning("the workers change: %s", reason, extra=logs.event("workers_change"))


def _note_loss(lost: str, goes_back: bool) -> None:
    said, event = "going back to the last commit", logs.event("state_restored")
    if not goes_back:
        said, event = "going on without the worker that is lost", logs.event("worker_lost")
    _logger.warning("%s: %s", said, lost, extra=event)


def _come_together_again(lost: str) -> None:
    """Meets the others in the next epoch.

    Args:
        lost: why this worker goes back, if it does: others that have not lost anything have to go
            back with it.
    """
    config = runtime.requested_config()
    before = runtime.size()
    runtime.leave_epoch("" if _engine.worker_failure() else lost)
    runtime.init(config)
    for framework in frameworks.in_use():
        framework.forget_programs()
    _logger.warning(
        "rank %d of %d workers now, after %d workers",
        runtime.rank(),
        runtime.size(),
        before,
        extra=logs.event("workers_changed", workers=runtime.size(), workers_before=before),
    )


def _begin_epoch(is_first: bool) -> None:
    """Makes workers that were there before agree with new ones. A collective.

    Args:
        is_first: whether this process has not trained yet.
    """
    if not runtime.config().elastic:
        return
    in_use = frameworks.in_use()
    mine = {
        "is first": is_first,
        "generation": max((framework.generation() for framework in in_use), default=0),
        "address": runtime.own_address(),
    }
    everyone = gather_objects("elastic/epoch", mine) if runtime.size() > 1 else [mine]
    addresses = [worker["address"] for worker in everyone]
    generation = max(worker["generation"] for worker in everyone)
    for framework in in_use:
        framework.begin_epoch(addresses, generation, all(each["is first"] for each in everyone))
