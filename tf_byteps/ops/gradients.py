"""Gradients of the exchanges. Each is itself an exchange, under a name derived from the forward
one."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_byteps.ops import names
from tf_byteps.ops.library import kernels, token
from tf_byteps.types import Exchanged


@tf.RegisterGradient("BytePSPushPull")
def _push_pull_gradient(operation: tf.Operation, gradient: Exchanged) -> list[Any]:
    """Every worker's value enters every worker's result: the workers' gradients add up, or
    average."""
    return [None, _reduce(operation, gradient, _linear_op(operation))]


@tf.RegisterGradient("BytePSPushPullAll")
def _push_pull_all_gradient(operation: tf.Operation, *gradients: tf.Tensor) -> Any:
    """As for each by itself, again as one operation."""
    op = _linear_op(operation)
    forward_names = [name.decode() for name in operation.get_attr("tensor_names")]
    gradient_names = [names.numbered(f"{name}/gradient") for name in forward_names]
    reduced = kernels().byte_ps_push_pull_all(
        [token(name) for name in gradient_names],
        [tf.convert_to_tensor(gradient) for gradient in gradients],
        tensor_names=gradient_names,
        op=op,
        priorities=operation.get_attr("priorities"),
    )
    return [None] * len(gradients) + reduced


@tf.RegisterGradient("BytePSStartBefore")
def _start_before_gradient(_: tf.Operation, *gradients: tf.Tensor) -> Any:
    return list(gradients)


@tf.RegisterGradient("BytePSBroadcast")
def _broadcast_gradient(operation: tf.Operation, gradient: Exchanged) -> list[Any]:
    """Only the root's value is used, by all workers: their gradients add up, or average."""
    reduced = _reduce(operation, gradient, operation.get_attr("gradient").decode())
    is_root = tf.equal(_rank(), operation.get_attr("root_rank"))
    return [None, tf.where(is_root, reduced, tf.zeros_like(reduced))]


@tf.RegisterGradient("BytePSGather")
def _gather_gradient(operation: tf.Operation, gradient: Exchanged) -> list[Any]:
    """Every worker uses all rows: the gradients add up, or average, and each worker takes its own
    rows of the result."""
    reduced = _reduce(operation, gradient, operation.get_attr("gradient").decode())
    shape = tf.shape(operation.inputs[1], out_type=tf.int64)
    name = names.numbered(operation.get_attr("tensor_name").decode() + "/gradient/rows")
    all_rows = kernels().byte_ps_gather(token(name), shape[:1], tensor_name=name)
    is_before = tf.range(tf.size(all_rows)) < _rank()
    begin = tf.reduce_sum(tf.where(is_before, all_rows, tf.zeros_like(all_rows)))
    # Not a slice, whose begin XLA wants to know when it compiles.
    own = tf.gather(reduced, begin + tf.range(shape[0]))
    return [None, tf.ensure_shape(own, operation.inputs[1].shape)]


@tf.RegisterGradient("BytePSAllToAll")
def _all_to_all_gradient(operation: tf.Operation, gradient: Exchanged, _: object) -> list[Any]:
    """Each row has gone to one worker: its gradient comes back from there."""
    name = names.numbered(operation.get_attr("tensor_name").decode() + "/gradient")
    own, _ = kernels().byte_ps_all_to_all(
        token(name),
        tf.convert_to_tensor(gradient),
        operation.outputs[1],
        tensor_name=name,
        priority=operation.get_attr("priority"),
    )
    return [None, tf.ensure_shape(own, operation.inputs[1].shape), None]


def _linear_op(operation: tf.Operation) -> str:
    op = operation.get_attr("op").decode()
    if op not in ("sum", "average"):
        raise NotImplementedError(
            f"push_pull with op {op!r} has no gradient; use 'sum' or 'average', or tf.stop_gradient"
        )
    return op


def _rank() -> Any:
    # Read when it runs: the function may outlive the job in which it was traced.
    return kernels().byte_ps_place(what="rank")


def _reduce(operation: tf.Operation, gradient: Exchanged, op: str) -> Any:
    # Numbered, because TensorFlow does not keep the backward function's operations in order.
    name = names.numbered(operation.get_attr("tensor_name").decode() + "/gradient")
    return kernels().byte_ps_push_pull(
        token(name),
        tf.convert_to_tensor(gradient),
        tensor_name=name,
        op=op,
        priority=operation.get_attr("priority"),
    )
