"""Sets variables to one worker's values, after a look at whether all mean the same ones
(protocol rule 28)."""

import collections
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from tf_byteps.errors import on_all_workers
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.ops import broadcast

_NAMED = 3  # of the variables that differ


def synchronize(what: str, named_variables: Iterable[tuple[str, Any]], root_rank: int = 0) -> None:
    """Sets variables to one worker's values, in one group of broadcasts.

    Args:
        what: a few words for error messages, equal on all workers.
        named_variables: a list of pairs of a name and a `tf.Variable`.
        root_rank: the rank of the worker whose values count.

    Raises:
        ValueError: the workers' lists differ.
    """
    keyed = keyed_variables(named_variables)
    check_lists(what, gather_objects(f"initial values/{what}", list(keyed)))
    if keyed:
        with tf.init_scope():
            exchange = tf.function(lambda: broadcast_all(keyed, root_rank), autograph=False)
            exchange.get_concrete_function()()  # used once: a plain call would warn of retracing


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
        key = f"{name} {variable.dtype.name}{list(variable.shape)}"
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


def broadcast_all(keyed: Mapping[str, Any], root_rank: int) -> None:
    """Sets each variable to the root's value. `keyed` is what `keyed_variables` returned."""
    values = [_own_value(variable) for variable in keyed.values()]
    for (key, variable), value in zip(keyed.items(), values, strict=True):
        _set_own_value(variable, broadcast(value, root_rank, name=f"initial value/{key}"))


def _own_value(variable: Any) -> tf.Tensor:
    # A variable of a strategy whose reads are exchanged.
    own_value = getattr(variable, "byteps_own_value", None)
    return tf.identity(variable if own_value is None else own_value())


def _set_own_value(variable: Any, value: tf.Tensor) -> None:
    getattr(variable, "byteps_set_own_value", variable.assign)(value)
