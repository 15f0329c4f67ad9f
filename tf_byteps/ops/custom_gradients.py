"""Gradients of functions in a program, without keeping the program alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_byteps.private.tensorflow import framework_ops

_ATTRIBUTE = "byteps_gradients"


def custom_gradient(function: Callable[..., Any]) -> Callable[..., tf.Tensor]:
    """Does what `tf.custom_gradient` does. The graph in which it is called keeps the gradient.

    TensorFlow keeps it in a list of the process. It refers to the graph, and so to each variable
    that this has: a model's weights would stay until the process ends.

    Args:
        function: of tensors. It returns a tensor, and a function of its gradient that returns
            those of the arguments.

    Returns:
        The function, which returns the tensor.
    """
    decorated = tf.custom_gradient(function)

    def called(*tensors: tf.Tensor) -> tf.Tensor:
        result: Any = decorated(*tensors)
        if not tf.executing_eagerly():
            _have_graph_keep_gradient(result)
        return result

    return called


def _have_graph_keep_gradient(result: Any) -> None:
    """Has the graph keep the gradient of a tensor, and the process's list refer to it weakly."""
    name = result.op.get_attr("_gradient_op_type").decode()
    entry = framework_ops.gradient_registry._registry[name]
    gradient = entry["type"]
    kept = getattr(result.graph, _ATTRIBUTE, None)
    if kept is None:
        kept = []
        setattr(result.graph, _ATTRIBUTE, kept)
    kept.append(gradient)
    entry["type"] = _through(weakref.ref(gradient))


def _through(reference: weakref.ref[Callable[..., Any]]) -> Callable[..., Any]:
    def gradient(operation: Any, *gradients: Any) -> Any:
        kept = reference()
        assert kept is not None, "the graph is gone"  # it has the operation
        return kept(operation, *gradients)

    return gradient
