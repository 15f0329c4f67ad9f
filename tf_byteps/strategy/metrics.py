"""Metrics over all workers, at fixed points only (protocol rule 26).

During an epoch each worker's metrics count its own rows. Where Keras takes the results for the
logs, at the end of an epoch or of an evaluation, the states are reduced once. Reading a metric
anywhere else does not communicate.
"""

import collections

from keras.src.utils.python_utils import pythonify_logs

from tf_byteps import runtime
from tf_byteps.strategy.agreement import gather_objects
from tf_byteps.strategy.joined import reduce_variables

_OPS = {"sum": "sum", "mean": "average"}


def reduce_states(model):
    """Replaces the states of a Keras model's metrics by those over all workers. A collective.

    Args:
        model: a `keras.Model` whose workers have all finished the same epoch or evaluation.
    """
    if runtime.size() == 1:
        return
    groups = collections.defaultdict(list)
    for variable in model.metrics_variables:
        if variable.aggregation in _OPS:
            groups[variable.aggregation, variable.value.dtype].append(variable.value)
    for (aggregation, dtype), variables in groups.items():
        name = f"metrics/{aggregation}/{dtype.name}"
        reduce_variables(variables, _OPS[aggregation], name)


def logs_so_far(model, logs):
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
    variables = [variable.value for variable in model.metrics_variables]
    before = [variable.numpy() for variable in variables]
    reduce_states(model)
    results = pythonify_logs(model.get_metrics_result())
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)
    # As Keras has it at the end of an epoch.
    return results if set(results) == set(logs) else average_logs(logs)


def average_logs(logs):
    """The mean of logs that come from no metric, but from a model's own step. A collective.

    Args:
        logs: this worker's, a dictionary of scalars and other values.

    Returns:
        A dictionary with the same keys, in which the scalars are averaged that all workers have.
    """
    if runtime.size() == 1 or not isinstance(logs, dict):
        return logs
    logs = pythonify_logs(logs)
    mine = {key: value for key, value in logs.items() if isinstance(value, float)}
    everyone = gather_objects("logs", mine)
    for key in mine:
        if all(key in other for other in everyone):
            logs[key] = sum(other[key] for other in everyone) / len(everyone)
    return logs
