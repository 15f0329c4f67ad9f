"""Exchanges of NumPy arrays in host memory: between steps, by the engine, without a framework."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
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


def alltoall(array: np.ndarray, splits: Sequence[int], name: str) -> tuple[np.ndarray, list[int]]:
    """Sends each worker its rows, and receives those that the workers have for this one.

    Args:
        array: of shape `[rows, ...]`, of which `rows` may differ between the workers; of a dtype
            that the engine exchanges.
        splits: how many rows go to each worker, in rank order; they add up to `rows`.
        name: the exchange's, equal on all workers.

    Returns:
        An array of shape `[received rows, ...]`, in the order of the ranks that sent them, and how
        many each has sent.
    """
    try:
        handle = _engine.exchange(array, name=name, kind="alltoall", splits=splits)
        return handle.wait(_FOREVER), handle.received_rows()
    except _engine.EngineError as error:
        _raise(error)


def exchange_all(
    arrays: Sequence[np.ndarray], names: Sequence[str], **options: Any
) -> list[np.ndarray]:
    """Exchanges arrays so that none waits for another.

    Args:
        arrays: of any shapes, of dtypes that the engine exchanges.
        names: of the exchanges, equal on all workers.
        **options: what `_engine.exchange` takes for each: `kind`, `average`, `root_rank`, `codec`
            and others.

    Returns:
        The list of results.
    """
    handles = [start(array, name, **options) for array, name in zip(arrays, names, strict=True)]
    return [wait(handle) for handle in handles]


def start(array: np.ndarray, name: str, **options: Any) -> _engine.Handle:
    """Begins to exchange an array, see `exchange_all`.

    Returns:
        What `wait` takes.
    """
    try:
        return _engine.exchange(array, name=name, **options)
    except _engine.EngineError as error:
        _raise(error)


def wait(handle: _engine.Handle) -> np.ndarray:
    """The result of an exchange that `start` has begun."""
    try:
        return handle.wait(_FOREVER)
    except _engine.EngineError as error:
        _raise(error)


def reduce_fused(arrays: Sequence[np.ndarray], dtype: str, op: str, name: str) -> list[np.ndarray]:
    """Reduces many small arrays in one exchange.

    Args:
        arrays: with the same shapes on all workers.
        dtype: in which they are exchanged, such as "float64".
        op: "sum", "average", "min", "max" or "product".
        name: of the exchange.

    Returns:
        A list of arrays of the given ones' shapes and dtypes.
    """
    joined = np.concatenate([np.asarray(array).astype(dtype).ravel() for array in arrays])
    is_average = op == "average"
    kind = "sum" if is_average else op
    (reduced,) = exchange_all([joined], [name], kind=kind, average=is_average)
    parts = np.split(reduced, np.cumsum([array.size for array in arrays])[:-1])
    return [
        part.reshape(array.shape).astype(array.dtype)
        for array, part in zip(arrays, parts, strict=True)
    ]


def copy_all(
    arrays: Sequence[np.ndarray], names: Sequence[str], kind: str, root_rank: int = 0
) -> list[np.ndarray]:
    """Broadcasts or gathers arrays of any dtype that holds numbers, as their bits.

    Args:
        arrays: of any shapes; those to be gathered of the same, but for their rows.
        names: of the exchanges.
        kind: "broadcast" or "gather".
        root_rank: of a broadcast: the worker whose arrays count.

    Returns:
        The list of results, of the given dtypes.
    """
    sent = []
    for array in arrays:
        array = np.ascontiguousarray(array)
        rows = array.shape[:1] if kind == "gather" else ()
        row_bytes = math.prod(array.shape[len(rows) :]) * array.itemsize
        sent.append(
            array.view(np.uint8).reshape(*rows, row_bytes)
            if array.size
            else np.zeros((*rows, row_bytes), np.uint8)
        )
    received = exchange_all(sent, names, kind=kind, root_rank=root_rank)
    return [_as_array(got, array, kind) for got, array in zip(received, map(np.asarray, arrays))]


def _as_array(received: np.ndarray, given: np.ndarray, kind: str) -> np.ndarray:
    shape = (len(received), *given.shape[1:]) if kind == "gather" else given.shape
    return received.reshape(-1).view(given.dtype).reshape(shape)


@contextlib.contextmanager
def errors_as_raised() -> Iterator[None]:
    """Around calls of the engine: its errors become what `raise_errors_as` makes of them."""
    try:
        yield
    except _engine.EngineError as error:
        _raise(error)


def _raise(error: _engine.EngineError) -> NoReturn:
    converted = _as_raised(error)
    if converted is error:
        raise error
    raise converted from None
