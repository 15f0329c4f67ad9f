"""Reduces an optimizer's gradients over the workers."""

import threading
import weakref

import tensorflow as tf

from tf_byteps import _engine
from tf_byteps.ops import Sum, push_pull
from tf_byteps.strategy import local_batch

_lock = threading.Lock()
# Graph -> {name without index: the variables that use it}. Two models in one function may have equal paths.
_users = weakref.WeakKeyDictionary()


def reduce_gradients(gradients, variables):
    """Sums each gradient over all workers, in an exchange of its own that begins as soon as the gradient is there.

    The exchange is named after the variable, so that a retrace on one worker alone is harmless and two models do not
    meet under one name. Variables that come first in the list, which are used first in the next step, have priority.

    Args:
        gradients: a list of `tf.Tensor`, `tf.IndexedSlices` or `None`.
        variables: the variables that they belong to, `keras.Variable` or `tf.Variable`.

    Returns:
        The list of sums; `None` stays.
    """
    reduced = []
    announced = []
    for index, (gradient, variable) in enumerate(zip(gradients, variables)):
        if gradient is not None:
            name = _name(variable)
            if not isinstance(gradient, tf.IndexedSlices):
                gradient = tf.convert_to_tensor(gradient)
                announced.append((name, gradient))
            gradient = push_pull(
                local_batch.contribution(gradient), name=name, op=Sum, priority=-index
            )
        reduced.append(gradient)
    _declare(announced)
    return reduced


def _name(variable):
    name = f"gradient/{getattr(variable, 'path', None) or variable.name}"
    if tf.executing_eagerly():
        return name
    with _lock:
        users = _users.setdefault(tf.compat.v1.get_default_graph(), {}).setdefault(name, [])
        if id(variable) not in users:
            users.append(id(variable))
        index = users.index(id(variable))
    return f"{name}#{index}" if index else name


def _declare(named_tensors):
    """Announces the gradients of a traced function in one message, so that placing them costs one round trip."""
    if tf.executing_eagerly():
        return
    _engine.declare(
        [
            (name, tensor.dtype.name, tensor.shape.as_list(), "sum", False, 0)
            for name, tensor in named_tensors
            if tensor.shape.is_fully_defined()
        ]
    )
