"""Gradients that optimizers accumulate over steps: each worker's own, until an update.

The update averages over the workers. So their average may take their place on all workers at any
time: the update comes out the same. It must, before others see the accumulators: before worker 0
saves them, or they are overwritten by worker 0's.
"""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from tf_byteps import runtime
from tf_byteps.exchange.equality import differing
from tf_byteps.exchange.optimizers import with_inner
from tf_byteps.types import Optimizer

# Optimizer -> its steps when its accumulators were last made the same on all workers.
_averaged_at: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

# Sets `keras.Variable`s of an optimizer to their average over all workers, under these names.
Exchange = Callable[[Optimizer, list[tuple[str, Any]]], None]


def average(
    optimizers: Iterable[Any],
    exchange: Exchange,
    leaves_out: Callable[[Any], bool] = lambda variable: False,
) -> None:
    """Sets what optimizers have accumulated to the average over all workers.

    A collective if one of them accumulates. If all have just updated, that is a tiny exchange.
    Otherwise one the size of the gradients, as an update's.

    Args:
        optimizers: `keras.optimizers.Optimizer`s, the same on all workers.
        exchange: of the framework.
        leaves_out: takes a `keras.Variable` that an optimizer updates; returns whether its
            accumulator stays the worker's own.
    """
    accumulating = _accumulating(optimizers)
    if not accumulating or runtime.size() == 1:
        return
    steps = [int(optimizer._iterations.numpy()) for optimizer in accumulating]
    # After a failure a worker may be a step ahead. Its accumulators do not belong to the others'.
    differ = differing("steps of optimizers that accumulate", steps)
    for optimizer, count, differs in zip(accumulating, steps, differ, strict=True):
        if not differs and count % optimizer.gradient_accumulation_steps:
            exchange(optimizer, _named(optimizer, leaves_out))
            _averaged_at[optimizer] = count


def are_own(optimizers: Iterable[Any]) -> bool:
    """Whether one of some optimizers has accumulated gradients of this worker's rows alone."""
    return any(
        each._iterations.numpy() % each.gradient_accumulation_steps
        and _averaged_at.get(each) != each._iterations.numpy()
        for each in _accumulating(optimizers)
    )


def _accumulating(optimizers: Iterable[Any]) -> list[Any]:
    return [
        each
        for optimizer in optimizers
        for each in with_inner(optimizer)
        if each.gradient_accumulation_steps and each.built
    ]


def _named(optimizer: Optimizer, leaves_out: Callable[[Any], bool]) -> list[tuple[str, Any]]:
    pairs = zip(optimizer._accumulated_gradients, optimizer._trainable_variables, strict=True)
    return [
        (f"accumulated gradient/{accumulator.path}", accumulator)
        for accumulator, variable in pairs
        if accumulator is not None and not leaves_out(variable)
    ]
