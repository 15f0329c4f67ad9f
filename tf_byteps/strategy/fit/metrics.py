"""Metrics over all workers, at fixed points only (protocol rule 26).

During an epoch each worker's metrics count its own rows. Where Keras takes the results for the
logs, at the end of an epoch or of an evaluation, the states are reduced once. Reading a metric
anywhere else does not communicate. Before the states go on counting each worker gets its own ones
back: a metric that is not reset would count the others' rows again.

A state is summed, unless its `aggregation` is "mean" or "none", or the program says otherwise with
an attribute of the variable, "sum", "average", "min" or "max":

    self.largest = self.add_variable([], "zeros")
    self.largest.byteps_op = "max"
"""

import collections
import logging
import weakref
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import keras
import numpy as np

from tf_byteps import runtime
from tf_byteps.exchange import host, reduce_op
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.private.keras import pythonify_logs
from tf_byteps.strategy.fit import framework
from tf_byteps.types import Logs

_logger = logging.getLogger("tf_byteps")
_OPS = {"sum": "sum", "mean": "average"}
# Model -> pairs of a state that shows what all workers have counted, and what this one has; and
# the reverse.
_own = weakref.WeakKeyDictionary()
_all = weakref.WeakKeyDictionary()
_own_results = weakref.WeakKeyDictionary()  # model -> this worker's, before the last reduction
_warned = set()  # names of logs


def reduce_states(model: keras.Model) -> None:
    """Replaces the states of a Keras model's metrics by those over all workers. A collective.

    Args:
        model: a `keras.Model` whose workers have all finished the same epoch or evaluation.

    Raises:
        TypeError: a state has a dtype that cannot be reduced.
    """
    if runtime.size() == 1:
        return
    _own_results[model] = pythonify_logs(model.get_metrics_result())
    groups = collections.defaultdict(list)
    for variable in model.metrics_variables:
        op = operation(variable)
        if op is not None:
            groups[_exchange(variable, op)].append(variable)
    own = []
    for (op, dtype), states in groups.items():
        values = [_value(state) for state in states]
        own += zip(states, values, strict=True)
        reduced = host.reduce_fused(values, dtype, op, f"metrics/{op}/{dtype}")
        for state, value in zip(states, reduced, strict=True):
            state.assign(value)
    _own[model] = own
    _all.pop(model, None)


def operation(variable: keras.Variable) -> reduce_op.ReduceOp | None:
    """How the workers' states are put together; `None`: each keeps its own.

    Args:
        variable: a `keras.Variable` of a metric.
    """
    op = getattr(variable, "byteps_op", None) or _OPS.get(variable.aggregation)
    return reduce_op.resolve(None, op) if op else None


def _exchange(variable: keras.Variable, op: reduce_op.ReduceOp | str | None) -> Any:
    """The reduction of a state, and the dtype in which it is exchanged."""
    dtype = keras.backend.standardize_dtype(variable.dtype)
    if dtype == "bool":
        return ("max" if op == "sum" else op), "int64"  # whether it is true anywhere
    is_integer = keras.backend.is_int_dtype(dtype)
    if keras.backend.is_float_dtype(dtype) or (is_integer and op == "average"):
        return op, "float64"
    if is_integer:
        return op, "int64"
    raise TypeError(
        f"the state {variable.path!r} of a metric has dtype {dtype}, which cannot be reduced "
        "over the workers: use a number, or aggregation='none' to leave it each worker's own"
    )


def _value(state: np.ndarray) -> np.ndarray:
    return np.array(keras.ops.convert_to_numpy(state))


def give_back(model: keras.Model) -> None:
    """Sets the states that `reduce_states` has replaced to this worker's own ones again.

    Args:
        model: a `keras.Model` whose metrics are about to be reset or to go on.
    """
    _swap(model, _own, _all)


def show_all(model: keras.Model) -> None:
    """Undoes `give_back`: a training has ended, and its metrics show what all workers counted."""
    _swap(model, _all, _own)


def _swap(
    model: keras.Model, source: MutableMapping[Any, Any], target: MutableMapping[Any, Any]
) -> None:
    values = source.pop(model, None)
    if values is not None:
        target[model] = [(state, _value(state)) for state, _ in values]
        for state, value in values:
            state.assign(value)


def logs_so_far(model: keras.Model, logs: Logs) -> Any:
    """The logs over the rows of all workers so far. A collective.

    The metrics themselves go on with each worker's own rows.

    Args:
        model: a `keras.Model` whose workers have all trained on the same batches of an epoch.
        logs: this worker's own, a dictionary of numbers.

    Returns:
        A dictionary with the same keys.
    """
    if runtime.size() == 1:
        return logs
    reduce_states(model)
    results = of_all_workers(model, logs)
    give_back(model)
    return results


def of_all_workers(model: keras.Model, logs: Logs) -> Any:
    """The logs of an epoch or an evaluation over the rows of all workers. A collective.

    Args:
        model: a `keras.Model` whose metrics' states have been reduced.
        logs: this worker's, a dictionary of scalars and other values.

    Returns:
        A dictionary with the same keys. Results of the model's metrics are those of the reduced
        states, under another name too: a step of the user's own may return a metric's result as
        `loss`. It is known by its value. Other numbers, in which the workers differ, are averaged
        if all have them: those of the model's own step, weighted by the rows of the last step, from
        which they come, and those of metrics whose state is not in their variables.
    """
    if runtime.size() == 1 or not isinstance(logs, dict):
        return logs
    logs = pythonify_logs(logs)
    results = pythonify_logs(model.get_metrics_result())
    logs.update({key: value for key, value in results.items() if key in logs})
    mine = {key: _number(value) for key, value in logs.items() if _number(value) is not None}
    rows = framework.current().last_rows(model)
    rows = 1 if rows is None else rows
    everyone = gather_objects("logs", [mine, rows, _equal_metrics(model, mine) if rows else None])
    for key, value in mine.items():
        of_metric = key in results
        metric = None if of_metric else _renamed(key, [equal for *_, equal in everyone])
        if metric in results:
            logs[key] = results[metric]
            continue
        numbers = [(np.array(other[key]), rows) for other, rows, _ in everyone if key in other]
        if len(numbers) < len(everyone) or not _differ(numbers, value):
            continue
        logs[key] = _average(numbers, by_rows=not of_metric, own=logs[key])
        if of_metric:
            _warn(key)
    return logs


def _differ(numbers: Sequence[tuple[np.ndarray, int]], value: Any) -> bool:
    """Whether the workers' numbers can be averaged, and are not all this one: it keeps its bits."""
    has_one_shape = len({each.shape for each, _ in numbers}) == 1
    return has_one_shape and not all(
        np.array_equal(each, value, equal_nan=True) for each, _ in numbers
    )


def _average(numbers: Sequence[tuple[np.ndarray, int]], by_rows: bool, own: Any) -> Any:
    """The workers' average of a number, or `own` if nobody has rows.

    Args:
        numbers: each worker's, with the rows of which it is.
        by_rows: whether those are its weight.
        own: this worker's value.
    """
    # What a worker without rows has computed from a row of zeros may be no number.
    counted = [(each, rows if by_rows else 1) for each, rows in numbers if rows or not by_rows]
    if not counted:
        return own
    values, weights = zip(*counted, strict=True)
    mean = np.average(values, axis=0, weights=weights)
    return float(mean) if mean.ndim == 0 else mean


def _equal_metrics(model: keras.Model, numbers: Mapping[str, Any]) -> dict[Any, Any]:
    """{key of a number: names of the model's metrics whose result of this worker equals it}."""
    results = {key: _number(value) for key, value in _own_results.get(model, {}).items()}
    return {
        key: [
            name
            for name, result in results.items()
            if result is not None
            and np.shape(result) == np.shape(number)
            and np.allclose(result, number, rtol=1e-6, atol=0)  # XLA rounds otherwise
        ]
        for key, number in numbers.items()
    }


def _renamed(key: str, of_workers: Sequence[Any]) -> Any:
    """The metric whose result has another key in the logs, or `None`.

    Args:
        key: the key in the logs.
        of_workers: of each worker what `_equal_metrics` gave; `None` of one without rows in the
            last step, whose logs come from a row of zeros.
    """
    names = [equal.get(key, []) for equal in of_workers if equal is not None]
    common = [name for name in names[0] if all(name in other for other in names)] if names else []
    return common[0] if common else None


def _number(value: Any) -> Any:
    """A float, or an array of numbers as lists; `None` for anything else."""
    if isinstance(value, float):
        return value
    is_array = isinstance(value, np.ndarray) and value.dtype.kind in "fiu"
    return value.tolist() if is_array else None


def _warn(key: str) -> None:
    if key in _warned or runtime.rank() != 0:
        return
    _warned.add(key)
    _logger.warning(
        "the workers' values of the metric %r differ, although the states of metrics are those of "
        "all workers: it keeps something that is not in its variables. Logs show the mean of the "
        "workers. Keep its state in variables (Metric.add_variable) to count all rows",
        key,
    )
