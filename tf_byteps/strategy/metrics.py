"""Metrics over all workers, at fixed points only (protocol rule 26).

During an epoch each worker's metrics count its own rows. Where Keras takes the results for the
logs, at the end of an epoch or of an evaluation, the states are reduced once. Reading a metric
anywhere else does not communicate.
"""

import collections

from tf_byteps import runtime
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
