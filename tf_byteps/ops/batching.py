"""Several exchanges at once in eager code, where each call would wait for its result.

They become one traced function, which is kept: a loop over equal lists traces once.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Functions of so many different lists are kept.
_KEPT = 256


def run(exchange: Callable[[list[Any]], list[Any]], tensors: list[Any]) -> list[Any]:
    """Exchanges tensors so that none waits for another, in eager code too.

    Args:
        exchange: a function of a list of tensors that returns the list of results. It must be
            hashable, and equal to another only if both do the same.
        tensors: a list of `tf.Tensor` or `tf.IndexedSlices`.

    Returns:
        The list of results.
    """
    if len(tensors) < 2 or not tf.executing_eagerly():
        return exchange(tensors)
    # A concrete function is called, because a plain call runs eagerly after
    # tf.config.run_functions_eagerly(True), and warns of retracing if there are many lists.
    return _function(exchange).get_concrete_function(tensors)(tensors)


@functools.lru_cache(maxsize=_KEPT)
def _function(exchange: Callable[[list[Any]], list[Any]]) -> Any:
    return tf.function(exchange, autograph=False, reduce_retracing=True)
