"""Several tables on the servers at once: no request waits for that of another table."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from tf_byteps.tables.server_table import ServerTable

_Result = TypeVar("_Result")


def read(
    tables: Sequence[ServerTable], rows: Sequence[np.ndarray[Any, Any]]
) -> list[np.ndarray[Any, Any]]:
    """Some rows of each table, see `ServerTable.read`.

    Args:
        tables: each once.
        rows: of each table the numbers.

    Returns:
        For each table an array of shape `[len(rows), width]`.
    """
    with _all_locked(tables):
        return _ended(
            lambda table=table, its=its: table.begin_read(its)
            for table, its in zip(tables, rows, strict=True)
        )


def update(
    tables: Sequence[ServerTable],
    rows: Sequence[np.ndarray[Any, Any]],
    gradients: Sequence[np.ndarray[Any, Any]],
    rates: Sequence[float],
) -> None:
    """Updates rows of each table, see `ServerTable.update`. A collective.

    Args:
        tables: each once, in the same order on all workers.
        rows: of each table the numbers.
        gradients: of each table, of shape `[len(rows), width]`.
        rates: of each table the learning rate.
    """
    with _all_locked(tables):
        _ended(
            lambda table=table, its=its, values=values, rate=rate: table.begin_update(
                its, values, rate
            )
            for table, its, values, rate in zip(tables, rows, gradients, rates, strict=True)
        )


@contextlib.contextmanager
def _all_locked(tables: Iterable[ServerTable]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for table in sorted(tables, key=lambda table: table.name):  # so do all threads
            stack.enter_context(table.mutex)
        yield


def _ended(begins: Iterable[Callable[[], Callable[[], _Result]]]) -> list[_Result]:
    """Begins all, then ends all. Raises the first error when all that have begun have ended."""
    ends, results, errors = [], [], []
    try:
        for begin in begins:
            ends.append(begin())
    except Exception as error:
        errors.append(error)
    for end in ends:
        try:
            results.append(end())
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return results
