"""`push_pull`, `broadcast` and `gather`, eager and within `tf.function`."""

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from tf_byteps.ops import gradients as _gradients  # noqa: F401  (registers them)
from tf_byteps.ops import names, reduce_op
from tf_byteps.ops.library import kernels, token

_DTYPES = (
    tf.float32,
    tf.float64,
    tf.float16,
    tf.bfloat16,
    tf.int8,
    tf.uint8,
    tf.int32,
    tf.int64,
)
_MAX_NAME_BYTES = 1024


@tf.autograph.experimental.do_not_convert
def push_pull(tensor, average=None, name=None, op=None, priority=None):
    """Combines a tensor elementwise over all workers; every worker gets the result.

    Section 3 of the BytePS paper (OSDI'20): a push of this worker's value and a pull of the result, as one exchange.
    Within a `tf.function` any number of them are under way at once; those of one name keep their program order.

    Args:
        tensor: a `tf.Tensor` (or what converts to one) of any shape, the same on all workers; of dtype float32,
            float64, float16, bfloat16, int8, uint8, int32 or int64. Or a `tf.IndexedSlices`, whose rows may differ.
        average: the older way to choose `op`: `True` for `Average`, `False` for `Sum`.
        name: a string, the same on all workers. Default: derived from the place of the call in the program.
        op: `tf_byteps.Sum`, `Average` (the default), `Min` or `Max`, or its name. An average needs a floating dtype.
            Integer sums wrap around. Only `Sum` and `Average` exist for `tf.IndexedSlices`.
        priority: an integer; of what waits to be sent, the highest goes first. Default 0.

    Returns:
        A tensor of the same shape and dtype; for `tf.IndexedSlices` one with each index once, in ascending order.

    Raises:
        TypeError: the dtype cannot be exchanged.
        ValueError: `average` and `op` are both given, or an average of integers is asked for.
        tf.errors.FailedPreconditionError: `tf_byteps.init()` was not called, or the workers disagree about the tensor.
        tf.errors.UnavailableError: a worker or server was lost.

    Example:

    >>> tf_byteps.push_pull(tf.constant([1.0, 2.0]) * tf_byteps.rank(), op=tf_byteps.Sum)
    """
    op = reduce_op.resolve(average, op)
    if isinstance(tensor, tf.IndexedSlices):
        return _push_pull_slices(tensor, op, name, priority)
    tensor = _checked(tensor, "push_pull")
    if op == reduce_op.Average and not tensor.dtype.is_floating:
        raise ValueError(
            f"an average of {tensor.dtype.name} is not exact: pass op=tf_byteps.Sum and divide, or cast to a "
            "floating dtype"
        )
    name = _name(name, "push_pull", tensor)
    return kernels().byte_ps_push_pull(
        token(name), tensor, tensor_name=name, op=str(op), priority=_priority(priority)
    )


@tf.autograph.experimental.do_not_convert
def broadcast(tensor, root_rank, name=None, priority=None):
    """Gives every worker the root's tensor.

    The result is always a copy of the root's bytes: nothing of the other workers' values survives, not even a NaN.

    Args:
        tensor: a `tf.Tensor` of any shape, the same on all workers; dtypes as for `push_pull`.
        root_rank: an integer, the rank of the worker whose value counts.
        name: see `push_pull`.
        priority: see `push_pull`.

    Returns:
        A tensor of the same shape and dtype.

    Raises:
        TypeError: the dtype cannot be exchanged.
        ValueError: `root_rank` is negative.
        tf.errors.FailedPreconditionError: see `push_pull`.

    Example:

    >>> weights.assign(tf_byteps.broadcast(weights, root_rank=0, name="weights"))
    """
    tensor = _checked(tensor, "broadcast")
    root_rank = int(root_rank)
    if root_rank < 0:
        raise ValueError(f"root_rank must be the rank of a worker, got {root_rank}")
    name = _name(name, "broadcast", tensor)
    return kernels().byte_ps_broadcast(
        token(name), tensor, tensor_name=name, root_rank=root_rank, priority=_priority(priority)
    )


@tf.autograph.experimental.do_not_convert
def gather(tensor, name=None, priority=None):
    """Concatenates the workers' tensors along axis 0, in rank order; every worker gets the result.

    Args:
        tensor: a `tf.Tensor` of shape `[rows, ...]`; `rows` may differ between the workers and may be 0, the rest of
            the shape may not. Dtypes as for `push_pull`.
        name: see `push_pull`.
        priority: see `push_pull`.

    Returns:
        A tensor of shape `[rows of all workers, ...]` and the same dtype.

    Raises:
        TypeError: the dtype cannot be exchanged.
        ValueError: the tensor is a scalar.
        tf.errors.FailedPreconditionError: see `push_pull`.

    Example:

    >>> all_losses = tf_byteps.gather(tf.reshape(loss, [1]))
    """
    tensor = _checked(tensor, "gather")
    if tensor.shape.rank == 0:
        raise ValueError(
            "a scalar has no axis 0 to gather along: reshape it to [1] to get one element per worker"
        )
    name = _name(name, "gather", tensor)
    return kernels().byte_ps_gather(
        token(name), tensor, tensor_name=name, priority=_priority(priority)
    )


def _checked(tensor, what):
    """The tensor to exchange, after the checks that every operation needs."""
    if isinstance(tensor, (tf.SparseTensor, tf.RaggedTensor)):
        raise TypeError(f"{what} takes dense tensors, got a {type(tensor).__name__}")
    tensor = tf.convert_to_tensor(tensor)
    if tensor.dtype not in _DTYPES:
        supported = ", ".join(dtype.name for dtype in _DTYPES)
        raise TypeError(
            f"{what} cannot exchange a tensor of dtype {tensor.dtype.name}; supported are {supported}"
        )
    if not tf.executing_eagerly():
        graph = tf.compat.v1.get_default_graph()
        if not graph.building_function:
            raise RuntimeError(
                f"{what} works in eager code and in tf.function, not in a TensorFlow 1 graph"
            )
        if control_flow_util.GraphOrParentsInXlaContext(graph):
            raise tf.errors.UnimplementedError(
                None, None, f"{what} cannot be compiled by XLA: compile with jit_compile=False"
            )
    return tensor


def _name(name, kind, tensor):
    if name is None:
        return names.unnamed(kind, tensor)
    if not isinstance(name, str) or not 0 < len(name.encode()) <= _MAX_NAME_BYTES:
        raise ValueError(f"name must be a string of 1 to {_MAX_NAME_BYTES} bytes, got {name!r}")
    return name


def _priority(priority):
    priority = 0 if priority is None else int(priority)
    if not -(2**31) <= priority < 2**31:
        raise ValueError(f"priority must fit 32 bits, got {priority}")
    return priority


def _push_pull_slices(slices, op, name, priority):
    """The sum or average of `tf.IndexedSlices`: all rows of all workers, those of one index added up.

    Duplicates are merged because optimizers that square the rows would see another gradient otherwise.
    """
    if op not in (reduce_op.Sum, reduce_op.Average):
        raise ValueError(
            f"op {str(op)!r} does not exist for tf.IndexedSlices: use 'sum' or 'average'"
        )
    name = _name(name, "push_pull", _checked(slices.values, "push_pull"))
    indices = gather(slices.indices, f"{name}/indices", priority)
    values = gather(slices.values, f"{name}/values", priority)
    unique, positions = tf.unique(indices)
    order = tf.argsort(unique)
    rank = tf.math.invert_permutation(order)
    values = tf.math.unsorted_segment_sum(values, tf.gather(rank, positions), tf.size(unique))
    if op == reduce_op.Average:
        # One byte from each worker counts them at run time: a traced function must not hold their number.
        workers = tf.size(gather(tf.zeros([1], tf.uint8), f"{name}/workers", priority))
        values /= tf.cast(workers, values.dtype)
    return tf.IndexedSlices(values, tf.gather(unique, order), slices.dense_shape)
