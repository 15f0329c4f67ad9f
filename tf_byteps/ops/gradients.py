"""Gradients of the exchanges. Each is itself an exchange, under a name derived from the forward
one."""

import tensorflow as tf

from tf_byteps.ops import names
from tf_byteps.ops.library import kernels, token


@tf.RegisterGradient("BytePSPushPull")
def _push_pull_gradient(operation, gradient):
    """Every worker's value enters every worker's result: the workers' gradients add up, or
    average."""
    op = operation.get_attr("op").decode()
    if op not in ("sum", "average"):
        raise NotImplementedError(
            f"push_pull with op {op!r} has no gradient; use 'sum' or 'average', or tf.stop_gradient"
        )
    return [None, _reduce(operation, gradient, op)]


@tf.RegisterGradient("BytePSBroadcast")
def _broadcast_gradient(operation, gradient):
    """Only the root's value is used, by all workers."""
    total = _reduce(operation, gradient, "sum")
    is_root = tf.equal(_rank(), operation.get_attr("root_rank"))
    return [None, tf.where(is_root, total, tf.zeros_like(total))]


@tf.RegisterGradient("BytePSGather")
def _gather_gradient(operation, gradient):
    """Every worker uses all rows: the gradients add up, and each worker takes its own rows of the
    sum."""
    total = _reduce(operation, gradient, "sum")
    rows = tf.shape(operation.inputs[1], out_type=tf.int64)[:1]
    name = names.numbered(operation.get_attr("tensor_name").decode() + "/gradient/rows")
    all_rows = kernels().byte_ps_gather(token(name), rows, tensor_name=name)
    begin = tf.reduce_sum(all_rows[: _rank()])
    own = total[begin : begin + rows[0]]
    return [None, tf.ensure_shape(own, operation.inputs[1].shape)]


def _rank():
    # Read when it runs: the function may outlive the job in which it was traced.
    return kernels().byte_ps_place(what="rank")


def _reduce(operation, gradient, op):
    # Numbered, because TensorFlow does not keep the backward function's operations in order.
    name = names.numbered(operation.get_attr("tensor_name").decode() + "/gradient")
    return kernels().byte_ps_push_pull(
        token(name),
        tf.convert_to_tensor(gradient),
        tensor_name=name,
        op=op,
        priority=operation.get_attr("priority"),
    )
