"""Whether all workers mean the same variables (protocol rule 28)."""

import collections
from collections.abc import Iterable
from typing import Any

from tf_byteps.errors import on_all_workers

_NAMED = 3  # of the variables that differ


def check_lists(what: str, lists: list[list[str]]) -> None:
    """Raises ValueError if the workers' lists of keys, in rank order, are not all the same."""
    for rank, other in enumerate(lists):
        if sorted(other) != sorted(lists[0]):
            raise on_all_workers(ValueError(_difference(what, rank, other, lists[0])))


def keyed_variables(named_variables: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Key -> variable. The key says name, dtype and shape, and which one it is of those that agree
    in all of these."""
    counts = collections.Counter()
    keyed = {}
    for name, variable in named_variables:
        dtype = getattr(variable.dtype, "name", variable.dtype)
        key = f"{name} {dtype}{list(variable.shape)}"
        counts[key] += 1
        keyed[key if counts[key] == 1 else f"{key} #{counts[key]}"] = variable
    return keyed


def _difference(what: str, rank: int, other: list[str], first: list[str]) -> str:
    missing, extra = _some(first, other), _some(other, first)
    return (
        f"the workers differ in the {what}: worker {rank} lacks {missing} and has {extra} that "
        "worker 0 does not have. All workers must build the same model and optimizer"
    )


def _some(keys: list[str], others: list[str]) -> str:
    """Of those that are not among the others the first: a model's come before its optimizer's."""
    known = set(others)
    found = [key for key in keys if key not in known]
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more if found else "nothing"
