"""Metrics over all workers, at fixed points only (protocol rule 26).

During an epoch each worker's metrics count its own rows. Where Keras takes the results for the
logs, at the end of an epoch or of an evaluation, the states are reduced once. Reading a metric
anywhere else does not communicate.
"""

import collections

import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.ops import push_pull

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
        states = tf.concat([tf.reshape(variable, [-1]) for variable in variables], 0)
        name = f"metrics/{aggregation}/{dtype.name}"
        reduced = push_pull(states, op=_OPS[aggregation], name=name)
        lengths = [variable.shape.num_elements() for variable in variables]
        for variable, state in zip(variables, tf.split(reduced, lengths)):
            variable.assign(tf.reshape(state, variable.shape))
