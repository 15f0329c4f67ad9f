"""What each worker has of its own rows in an epoch: states of metrics, variables of kind `own`.

A checkpoint within an epoch keeps them for each worker. The same number of workers goes on with
exactly these. With another number the metrics still count every row once: a worker takes over the
states of those that are missing.
"""

import functools
from typing import Any

import keras
import numpy as np

from tf_byteps import runtime
from tf_byteps.exchange.objects import allgather_object
from tf_byteps.strategy import variable_kinds
from tf_byteps.strategy.fit import metrics

_COMBINED = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def gather(model: keras.Model) -> list[list[bytes]]:
    """The states of all workers. A collective.

    Args:
        model: a `keras.Model` whose workers have all trained on the same batches of an epoch.

    Returns:
        For each worker, in rank order, a list of its states' bytes.
    """
    mine = [np.asarray(variable.value).tobytes() for variable in _variables(model)]
    return allgather_object(mine, name="states of a worker's own rows")


def restore(model: keras.Model, of_workers: list[list[bytes]]) -> None:
    """Sets this worker's states to those that it had, or that are its part of what others had.

    Args:
        model: a `keras.Model` before the first batch of a training that goes on.
        of_workers: what `gather` returned, perhaps to another number of workers.

    Raises:
        ValueError: they are those of other metrics.
    """
    variables = _variables(model)
    for states in of_workers:
        if [len(state) for state in states] != [_bytes(variable) for variable in variables]:
            raise ValueError(
                f"the checkpoint has {len(states)} states of metrics and other variables of a "
                f"worker's own, the model has {len(variables)}, or they have other shapes: compile "
                "it with the same metrics"
            )
    for index, variable in enumerate(variables):
        value = _mine(variable, [states[index] for states in of_workers])
        if value is not None:
            variable.assign(value)


def _variables(model: keras.Model) -> list[Any]:
    return variable_kinds.variables(model, variable_kinds.Kind.OWN, variable_kinds.Kind.METRIC)


def _dtype(variable: keras.Variable) -> np.dtype[Any]:
    return np.asarray(variable.value).dtype


def _bytes(variable: keras.Variable) -> int:
    return int(np.asarray(variable.value).nbytes)


def _mine(variable: keras.Variable, of_workers: list[bytes]) -> Any:
    """This worker's value, or `None` if nobody had one for it."""
    values = [np.frombuffer(each, _dtype(variable)).reshape(variable.shape) for each in of_workers]
    rank, size = runtime.rank(), runtime.size()
    if len(values) == size:
        return values[rank]
    op = metrics.operation(variable)
    if op == "average":
        return np.mean(values, axis=0).astype(values[0].dtype)
    if op is None or op not in _COMBINED:
        return values[rank] if rank < len(values) else None
    taken = values[rank::size]
    return functools.reduce(_COMBINED[op], taken) if taken else None
