"""`broadcast` and `gather`, eager and within `tf.function`: exchanges that copy what they send."""

import tensorflow as tf

from tf_byteps.exchange.arguments import checked_gradient, checked_priority, checked_root_rank
from tf_byteps.exchange.process_sets import ProcessSet, scope_of
from tf_byteps.ops import (
    bitcast,
    gradients as _gradients,  # noqa: F401  (registers them)
    strings,
)
from tf_byteps.ops.arguments import checked_tensor, exchange_name, names_for
from tf_byteps.ops.compiled.control_flow_order import in_order
from tf_byteps.ops.error_text import in_plain_words
from tf_byteps.ops.library import kernels, token
from tf_byteps.ops.process_sets import on_host
from tf_byteps.ops.refusals import reported_to_the_others
from tf_byteps.types import ExchangeInput


@in_plain_words
@reported_to_the_others(names_for("broadcast"))
def broadcast(
    tensor: ExchangeInput,
    root_rank: int,
    name: str | None = None,
    priority: int | None = None,
    gradient: str = "average",
    process_set: ProcessSet | None = None,
) -> tf.Tensor:
    """Gives every worker the root's tensor.

    The result is always a copy of the root's bytes: nothing of the other workers' values survives,
    not even a NaN.

    Args:
        tensor: a `tf.Tensor` of any shape, the same on all workers; of a dtype that `push_pull`
            takes, or of bool, string, int16, uint16, uint32, uint64, complex64 or complex128.
        root_rank: an integer, the rank of the worker whose value counts.
        name: see `push_pull`.
        priority: see `push_pull`.
        gradient: what the root gets as the gradient of its tensor: the `"average"` of the workers'
            gradients, as in Horovod and BytePS, or their `"sum"`, which is the gradient of the sum
            of the workers' losses. The others get zeros.
        process_set: see `push_pull`. `root_rank` is a rank of the job, of a worker that is in it.

    Returns:
        A tensor of the same shape and dtype.

    Raises:
        TypeError: the dtype cannot be exchanged.
        ValueError: `root_rank` is not a rank of the job, or `gradient` is something else.
        tf.errors.FailedPreconditionError: see `push_pull`.

    Example:

    >>> weights.assign(tf_byteps.broadcast(weights, root_rank=0, name="weights"))
    """
    tensor = checked_tensor(tensor, "broadcast", copies=True)
    root_rank = checked_root_rank(root_rank, process_set)
    name = exchange_name(name, "broadcast", scope_of(process_set))
    priority = checked_priority(priority)
    gradient = checked_gradient(gradient)
    if tensor.dtype != tf.string:
        return _broadcast(tensor, root_rank, name, priority, gradient)
    lengths, data = strings.to_bytes(tensor)
    lengths = _broadcast(lengths, root_rank, name, priority, gradient)
    # The others' strings have other lengths, but the root's number of bytes is to come.
    count = tf.reduce_sum(lengths)
    data = tf.concat([data, tf.zeros([count], tf.uint8)], 0)[:count]
    data = _broadcast(data, root_rank, f"{name}/bytes", priority, gradient)
    return strings.from_bytes(lengths, data)


def _broadcast(
    tensor: tf.Tensor, root_rank: int, name: str, priority: int, gradient: str
) -> tf.Tensor:
    encoded = bitcast.encode(tensor)
    with on_host(name):
        received = in_order(
            lambda: kernels().byte_ps_broadcast(
                token(name),
                encoded,
                tensor_name=name,
                root_rank=root_rank,
                priority=priority,
                gradient=gradient,
            )
        )
    return bitcast.decode(received, tensor.dtype)


@in_plain_words
@reported_to_the_others(names_for("gather"))
def gather(
    tensor: ExchangeInput,
    name: str | None = None,
    priority: int | None = None,
    gradient: str = "average",
    process_set: ProcessSet | None = None,
) -> tf.Tensor:
    """Concatenates the workers' tensors along axis 0, in rank order; every worker gets the result.

    Args:
        tensor: a `tf.Tensor` of shape `[rows, ...]`; `rows` may differ between the workers and may
            be 0, the rest of the shape may not. Dtypes as for `broadcast`.
        name: see `push_pull`.
        priority: see `push_pull`.
        gradient: what a worker gets as the gradient of its rows: the `"average"` of the workers'
            gradients, as in Horovod and BytePS, or their `"sum"`, which is the gradient of the sum
            of the workers' losses.
        process_set: see `push_pull`. Rows come in the order of the ranks of its workers.

    Returns:
        A tensor of shape `[rows of all workers, ...]` and the same dtype.

    Raises:
        TypeError: the dtype cannot be exchanged.
        ValueError: the tensor is a scalar, or `gradient` is something else.
        tf.errors.FailedPreconditionError: see `push_pull`.

    Example:

    >>> all_losses = tf_byteps.gather(tf.reshape(loss, [1]))
    """
    tensor = checked_tensor(tensor, "gather", copies=True)
    if tensor.shape.rank == 0:
        raise ValueError(
            "a scalar has no axis 0 to gather along: reshape it to [1], for one element per worker"
        )
    name = exchange_name(name, "gather", scope_of(process_set))
    priority = checked_priority(priority)
    gradient = checked_gradient(gradient)
    if tensor.dtype != tf.string:
        return _gather(tensor, name, priority, gradient)
    lengths, data = strings.to_bytes(tensor)
    lengths = _gather(lengths, name, priority, gradient)
    data = _gather(data, f"{name}/bytes", priority, gradient)
    return strings.from_bytes(lengths, data)


def _gather(tensor: tf.Tensor, name: str, priority: int, gradient: str) -> tf.Tensor:
    encoded = bitcast.encode(tensor)
    with on_host(name):
        gathered = in_order(
            lambda: kernels().byte_ps_gather(
                token(name), encoded, tensor_name=name, priority=priority, gradient=gradient
            )
        )
    return bitcast.decode(gathered, tensor.dtype)
