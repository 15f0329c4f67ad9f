"""Exchanges of NumPy arrays in host memory: between steps, by the engine, without a framework."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from tf_byteps import _engine

# An exchange ends by a result or an error of the engine, which has the timeouts; this is no limit.
_FOREVER = 1e8

_as_raised: Callable[[_engine.EngineError], Exception] = lambda error: error  # noqa: E731


def raise_errors_as(convert: Callable[[_engine.EngineError], Exception]) -> None:
    """Makes errors of these exchanges those of a framework, whose programs catch its own.

    Args:
        convert: a function of the engine's error that returns the one to raise.
    """
    global _as_raised
    _as_raised = convert


def gather(array: np.ndarray, name: str) -> np.ndarray:
    """Concatenates the workers' arrays along axis 0, in rank order.

    Args:
        array: of shape `[rows, ...]`, of which `rows` may differ between the workers; of a dtype
            that the engine exchanges.
        name: the exchange's, equal on all workers.

    Returns:
        An array of shape `[rows of all workers, ...]`, the same on all workers.

    Raises:
        EngineError: a process is lost, or the workers disagree; or what `raise_errors_as` makes of
            it. So do all functions here.
    """
    return exchange_all([array], [name], kind="gather")[0]


def exchange_all(
    arrays: Sequence[np.ndarray], names: Sequence[str], **options: Any
) -> list[np.ndarray]:
    """Exchanges arrays so that none waits for another.

    Args:
        arrays: of any shapes, of dtypes that the engine exchanges.
        names: of the exchanges, equal on all workers.
        **options: what `_engine.exchange` takes for each: `kind`, `average`, `root_rank`, `codec`.

    Returns:
        The list of results.
    """
    try:
        handles = [
            _engine.exchange(array, name=name, **options)
            for array, name in zip(arrays, names, strict=True)
        ]
        return [handle.wait(_FOREVER) for handle in handles]
    except _engine.EngineError as error:
        _raise(error)


def _raise(error: _engine.EngineError) -> NoReturn:
    converted = _as_raised(error)
    if converted is error:
        raise error
    raise converted from None
