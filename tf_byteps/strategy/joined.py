"""Reduces many small variables in one exchange."""

import tensorflow as tf

from tf_byteps.ops import push_pull


def reduce_variables(variables, op, name):
    """Sets variables to their reduction over all workers. A collective.

    Args:
        variables: a list of `tf.Variable` of one dtype, with the same shapes on all workers.
        op: see `push_pull`.
        name: of the exchange.
    """
    joined = tf.concat([tf.reshape(variable, [-1]) for variable in variables], 0)
    reduced = push_pull(joined, op=op, name=name)
    lengths = [variable.shape.num_elements() for variable in variables]
    for variable, value in zip(variables, tf.split(reduced, lengths), strict=True):
        variable.assign(tf.reshape(value, variable.shape))
