"""Sets variables to one worker's values, after a look at whether all mean the same ones
(protocol rule 28)."""

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.exchange.variable_lists import check_lists, keyed_variables
from tf_byteps.ops import broadcast


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
