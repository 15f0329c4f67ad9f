"""The same values of variables on all workers."""

import json
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from tf_byteps.exchange.process_sets import ProcessSet, scope_of
from tf_byteps.exchange.variable_lists import check_lists, keyed_variables
from tf_byteps.ops import gather, names
from tf_byteps.tables import layout as layouts
from tf_byteps.training import initial_values

_WHAT = "variables to broadcast"


def broadcast_variables(
    variables: Any,
    root_rank: int,
    scope: str = "",
    process_set: ProcessSet | None = None,
    inplace: bool = True,
) -> None:
    """Sets variables to the root's values, on all workers, in one group of broadcasts.

    The workers first compare what they are about to set: path, dtype and shape of each variable,
    not the order. Call it before training, and after a restore that only one worker has done.
    Within a `tf.function` it becomes part of the function. Rows of `DistributedEmbedding`, which
    are each worker's own, stay as they are.

    Args:
        variables: a list (or other structure) of `keras.Variable` or `tf.Variable`.
        root_rank: an integer, the rank of the worker whose values count.
        scope: a prefix of the exchanges' names.
        process_set: see `broadcast`.
        inplace: accepted for compatibility and not used: variables are always set in place.

    Raises:
        ValueError: the workers' lists differ; all workers raise it and it names the difference.
            Within a `tf.function` it is a `tf.errors.InvalidArgumentError`.

    Example:

    >>> tf_byteps.broadcast_variables(model.variables + optimizer.variables, root_rank=0)
    """
    del inplace
    named = [
        (names.in_scope(scope, getattr(variable, "path", variable.name)), tf_variable(variable))
        for variable in tf.nest.flatten(variables)
        if layouts.of(variable) is None
    ]
    if tf.executing_eagerly():
        initial_values.synchronize(_WHAT, named, root_rank, process_set)
    else:
        _broadcast_in_function(named, root_rank, process_set)


def broadcast_global_variables(root_rank: int) -> NoReturn:
    """Raises RuntimeError: TensorFlow 2 keeps no list of all variables.

    Args:
        root_rank: unused.

    Raises:
        RuntimeError: always, with what to use instead.

    Example: see `broadcast_variables`.
    """
    raise RuntimeError(
        "TensorFlow 2 keeps no list of all variables: call "
        f"tf_byteps.broadcast_variables(model.variables, root_rank={root_rank}), or train with "
        "the callback tf_byteps.keras.callbacks.BroadcastGlobalVariablesCallback"
    )


def tf_variable(variable: Any) -> tf.Variable:
    """The `tf.Variable` that a `keras.Variable` is made of, or the variable itself."""
    return variable if isinstance(variable, tf.Variable) else variable.value


def _broadcast_in_function(
    named: Sequence[tuple[str, Any]], root_rank: int, process_set: ProcessSet | None
) -> None:
    """Compares and broadcasts when the function runs: workers may trace at different times."""
    keyed = keyed_variables(named)
    text = json.dumps(list(keyed)).encode() + b"\n"
    name = names.numbered(f"initial values/{_WHAT} in a function", scope_of(process_set))
    gathered = gather(tf.constant(list(text), tf.uint8), name, process_set=process_set)
    same = tf.numpy_function(_check, [gathered], tf.bool, stateful=True)
    with tf.control_dependencies([same]):
        initial_values.broadcast_all(keyed, root_rank, process_set)


def _check(gathered: np.ndarray) -> bool:
    lists = [json.loads(line) for line in gathered.tobytes().splitlines()]
    check_lists(_WHAT, lists)
    return True
