"""Sets variables to one worker's values, after a look at whether all mean the same ones
(protocol rule 28)."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from tf_byteps.exchange.names import in_scope
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.exchange.process_sets import ProcessSet, scope_of
from tf_byteps.exchange.variable_lists import check_lists, keyed_variables
from tf_byteps.ops import batching, broadcast


def synchronize(
    what: str,
    named_variables: Iterable[tuple[str, Any]],
    root_rank: int = 0,
    process_set: ProcessSet | None = None,
) -> None:
    """Sets variables to one worker's values, in one group of broadcasts.

    Args:
        what: a few words for error messages, equal on all workers.
        named_variables: a list of pairs of a name and a `tf.Variable`.
        root_rank: the rank of the worker whose values count.
        process_set: the workers that do so; `None`: all.

    Raises:
        ValueError: the workers' lists differ.
    """
    keyed = keyed_variables(named_variables)
    name = in_scope(scope_of(process_set), f"initial values/{what}")
    check_lists(what, gather_objects(name, list(keyed)))
    if not keyed:
        return
    exchange = _Broadcasts(tuple(keyed), root_rank, process_set)
    with tf.init_scope():
        values = batching.run(exchange, [_own_value(each) for each in keyed.values()])
        for variable in reversed(keyed.values()):
            _set_own_value(variable, values.pop())  # whose memory is free then


@dataclasses.dataclass(frozen=True)
class _Broadcasts:
    """The root's values of variables of these keys. Those that are equal are traced once: tracing
    takes seconds for the variables of BERT-large."""

    keys: tuple[str, ...]
    root_rank: int
    process_set: ProcessSet | None = None

    def __call__(self, values: list[tf.Tensor]) -> list[Any]:
        return [
            broadcast(
                value, self.root_rank, name=f"initial value/{key}", process_set=self.process_set
            )
            for key, value in zip(self.keys, values, strict=True)
        ]


def broadcast_all(
    keyed: Mapping[str, Any], root_rank: int, process_set: ProcessSet | None = None
) -> None:
    """Sets each variable to the root's value. `keyed` is what `keyed_variables` returned."""
    exchange = _Broadcasts(tuple(keyed), root_rank, process_set)
    values = exchange([_own_value(variable) for variable in keyed.values()])
    for variable, value in zip(keyed.values(), values, strict=True):
        _set_own_value(variable, value)


def _own_value(variable: Any) -> tf.Tensor:
    # A variable of a strategy whose reads are exchanged.
    own_value = getattr(variable, "byteps_own_value", None)
    return tf.identity(variable if own_value is None else own_value())


def _set_own_value(variable: Any, value: tf.Tensor) -> None:
    getattr(variable, "byteps_set_own_value", variable.assign)(value)
