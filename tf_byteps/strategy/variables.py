"""Which class a variable that was just created in a strategy gets (see `exchanged_variables`)."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tf_byteps.private.tensorflow import BaseResourceVariable
from tf_byteps.strategy.exchanged_variables import (
    ExchangedVariable,
    OnReadVariable,
    OnWriteVariable,
)

_NONE = tf.VariableAggregation.NONE
_MEAN = tf.VariableAggregation.MEAN
_ONLY_FIRST_REPLICA = tf.VariableAggregation.ONLY_FIRST_REPLICA
_ON_READ = tf.VariableSynchronization.ON_READ

_local = threading.local()


@contextlib.contextmanager
def made_by_keras() -> Iterator[Any]:
    """Around the creation of Keras's own variables."""
    before = is_made_by_keras()
    _local.keras = True
    try:
        yield
    finally:
        _local.keras = before


def is_made_by_keras() -> Any:
    """Whether this thread creates one of Keras's own variables."""
    return getattr(_local, "keras", False)


def distributed(variable: tf.Variable) -> Any:
    """Gives a variable that was just created the class that its arguments ask for.

    Args:
        variable: a `tf.Variable`.

    Returns:
        The same variable.

    Raises:
        ValueError: there is no such variable in a strategy.
    """
    synchronization, aggregation = variable.synchronization, variable.aggregation
    if synchronization == tf.VariableSynchronization.NONE:
        raise ValueError(
            f"the variable {variable.name!r} has synchronization NONE, which a strategy cannot "
            "have: use AUTO, ON_WRITE or ON_READ"
        )
    from_keras = is_made_by_keras()
    if synchronization == _ON_READ:
        kind = None if from_keras else OnReadVariable
    else:
        plain = (_NONE, _ONLY_FIRST_REPLICA) if from_keras else (_NONE,)
        kind = None if aggregation in plain else OnWriteVariable
    if kind is None:
        return variable
    if aggregation == _MEAN and not variable.dtype.is_floating:
        raise ValueError(
            f"the variable {variable.name!r} has aggregation MEAN and dtype {variable.dtype.name}: "
            "use a floating dtype or another aggregation"
        )
    variable.__class__ = _subclass(kind, type(variable))
    return variable


def own_value(value: object) -> Any:
    """This worker's value of an `OnReadVariable`; anything else is returned as it is."""
    return value.byteps_own_value() if isinstance(value, OnReadVariable) else value


@functools.cache
def _subclass(kind: type[ExchangedVariable], variable_class: type[BaseResourceVariable]) -> Any:
    return type(variable_class.__name__, (kind, variable_class), {})
