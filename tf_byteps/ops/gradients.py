"""Gradients of the exchanges. Each is itself an exchange, under a name derived from the forward
one."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_byteps.ops import names
from tf_byteps.ops.compiled.control_flow_order import INNER_GRAPHS, in_order
from tf_byteps.ops.library import kernels, token
from tf_byteps.ops.process_sets import on_host, rank_in
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
    values = [tf.convert_to_tensor(gradient) for gradient in gradients]
    tokens = _tokens(operation, gradient_names)
    reduced = in_order(
        lambda: kernels().byte_ps_push_pull_all(
            tokens,
            values,
            tensor_names=gradient_names,
            op=op,
            priorities=operation.get_attr("priorities"),
        )
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
    own_rows = shape[:1]
    (its_token,) = _tokens(operation, [name])
    with on_host(name):
        all_rows = in_order(lambda: kernels().byte_ps_gather(its_token, own_rows, tensor_name=name))
    is_before = tf.range(tf.size(all_rows)) < rank_in(name)
    begin = tf.reduce_sum(tf.where(is_before, all_rows, tf.zeros_like(all_rows)))
    # Not a slice, whose begin XLA wants to know when it compiles.
    own = tf.gather(reduced, begin + tf.range(shape[0]))
    return [None, tf.ensure_shape(own, operation.inputs[1].shape)]


@tf.RegisterGradient("BytePSAllToAll")
def _all_to_all_gradient(operation: tf.Operation, gradient: Exchanged, _: object) -> list[Any]:
    """Each row has gone to one worker: its gradient comes back from there."""
    name = names.numbered(operation.get_attr("tensor_name").decode() + "/gradient")
    (its_token,) = _tokens(operation, [name])
    own, _ = kernels().byte_ps_all_to_all(
        its_token,
        tf.convert_to_tensor(gradient),
        operation.outputs[1],
        tensor_name=name,
        priority=operation.get_attr("priority"),
    )
    return [None, tf.ensure_shape(own, operation.inputs[1].shape), None]


@tf.RegisterGradient("BytePSRowSum")
def _row_sum_gradient(operation: tf.Operation, _: object, gradient: Exchanged) -> list[Any]:
    """Each row enters every worker's result: the gradients of all workers, who have the same rows,
    add up, or average, and each takes its own."""
    name = names.numbered(operation.get_attr("tensor_name").decode() + "/gradient")
    (its_token,) = _tokens(operation, [name])
    indices, rows = kernels().byte_ps_row_sum(
        its_token,
        operation.outputs[0],
        tf.convert_to_tensor(gradient),
        operation.inputs[3],
        tensor_name=name,
        average=operation.get_attr("average"),
        priority=operation.get_attr("priority"),
    )
    own = tf.gather(rows, tf.searchsorted(indices, operation.inputs[1]))
    return [None, None, tf.ensure_shape(own, operation.inputs[2].shape), None]


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
    value = tf.convert_to_tensor(gradient)
    (its_token,) = _tokens(operation, [name])
    with on_host(name):
        return in_order(
            lambda: kernels().byte_ps_push_pull(
                its_token, value, tensor_name=name, op=op, priority=operation.get_attr("priority")
            )
        )


def _tokens(operation: tf.Operation, gradient_names: list[str]) -> list[tf.Tensor]:
    """What orders the uses of the gradients' names. The gradient of a loop can have no resources
    but those of the loop itself."""
    if not isinstance(tf.compat.v1.get_default_graph(), INNER_GRAPHS):
        return [token(name) for name in gradient_names]
    return [each for each in operation.inputs if each.dtype == tf.resource]
