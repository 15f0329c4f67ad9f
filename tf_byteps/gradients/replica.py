"""Whether a `BytePSStrategy` is at work, for what must not load it."""

import tensorflow as tf

from tf_byteps.exchange.strategies import is_ours


def in_our_replica() -> bool:
    """Whether this thread runs or traces a replica of a `BytePSStrategy`."""
    context = tf.distribute.get_replica_context()
    return context is not None and is_ours(context.strategy)


def in_our_scope() -> bool:
    """Whether this thread is in the scope of a `BytePSStrategy`, outside of any replica."""
    return tf.distribute.in_cross_replica_context() and is_ours(tf.distribute.get_strategy())
