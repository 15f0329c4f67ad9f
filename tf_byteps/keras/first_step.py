"""Did all workers begin with the same weights? A look before an optimizer's first exchange."""

import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras

from tf_byteps import logs, runtime
from tf_byteps.errors import BytePSError, on_all_workers
from tf_byteps.exchange.equality import difference
from tf_byteps.exchange.names import in_scope
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.exchange.process_sets import scope_of

_logger = logging.getLogger("tf_byteps")
_checked = weakref.WeakSet()
_ADVICE = (
    "broadcast them before the first step: with "
    "tf_byteps.keras.callbacks.BroadcastGlobalVariablesCallback(0) in fit, or "
    "tf_byteps.keras.broadcast_variables(model.variables + optimizer.variables, root_rank=0)"
)

# Takes variables; returns a 64-bit number for the value of each.
Fingerprints = Callable[[Sequence[Any]], list[int]]


def check(
    optimizer: keras.optimizers.Optimizer, variables: Sequence[Any], fingerprints: Fingerprints
) -> None:
    """Compares the weights that an optimizer updates, before it does so first. A collective then.

    Also while a step is traced: it looks at the values of that moment. In elastic jobs, where
    workers come late, it does nothing.

    Args:
        optimizer: a distributed optimizer.
        variables: those that it is about to update: `keras.Variable`s.
        fingerprints: of the framework.

    Raises:
        BytePSError: on all workers, if a variable differs and BYTEPS_CHECK_WEIGHTS=error, or if
            not all of them train asynchronously.
    """
    if optimizer in _checked or runtime.size() == 1 or runtime.config().elastic:
        return
    _checked.add(optimizer)
    config = runtime.config()
    process_set = optimizer.byteps_reduction.process_set
    name = in_scope(scope_of(process_set), "check of weights")
    given = gather_objects(name, (config.check_weights, config.enable_async))
    mode = given[0][0]
    if len({is_async for _, is_async in given}) > 1:
        some = [rank for rank, (_, is_async) in enumerate(given) if is_async]
        raise on_all_workers(
            BytePSError(
                f"BYTEPS_ENABLE_ASYNC is 1 on workers {some}: set it on all workers, or on none"
            )
        )
    is_local = optimizer.byteps_reduction.is_local
    common = [variable for variable in variables if not is_local(variable)]
    found = None
    if mode != "off":
        names = [getattr(variable, "path", variable.name) for variable in common]
        found = difference("weights", names, fingerprints(common), process_set)
    if found is None:
        return
    message = f"before the first step, {found}: {_ADVICE}"
    if mode == "error":
        raise on_all_workers(BytePSError(message))
    if (runtime.rank() if process_set is None else process_set.rank()) == 0:
        _logger.warning("%s", message, extra=logs.event("weights_differ"))


def check_again(optimizer: keras.optimizers.Optimizer, fingerprints: Fingerprints) -> None:
    """Compares the weights once more, as `check` does, after a training that has failed.

    Args:
        optimizer: a distributed optimizer, which all workers have built or none.
        fingerprints: of the framework.

    Raises:
        BytePSError: see `check`.
    """
    variables = optimizer._trainable_variables
    if variables:
        forget(optimizer)
        check(optimizer, variables, fingerprints)


def forget(optimizer: keras.optimizers.Optimizer) -> None:
    """Lets `check` compare the weights of a distributed optimizer once more."""
    _checked.discard(optimizer)
