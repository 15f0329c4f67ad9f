"""The runtime's numbers as tensors that are read when they are needed, not when they are traced.

None of them can be compiled by XLA."""

import tensorflow as tf

from tf_byteps.exchange import process_sets
from tf_byteps.ops.library import kernels


def rank_op(name: str | None = None) -> tf.Tensor:
    """This worker's rank, read at run time: right even if the job changed after tracing.

    Args:
        name: a name for the operation.

    Returns:
        An int32 scalar.

    Raises:
        tf.errors.FailedPreconditionError: `tf_byteps.init()` was not called.

    Example:

    >>> is_root = tf_byteps.rank_op() == 0
    """
    return kernels().byte_ps_place(what="rank", name=name)


def local_rank_op(name: str | None = None) -> tf.Tensor:
    """This worker's rank among those of its machine, read at run time.

    Args:
        name: a name for the operation.

    Returns:
        An int32 scalar.

    Raises:
        See `rank_op`.

    Example:

    >>> port = 9000 + tf_byteps.local_rank_op()
    """
    return kernels().byte_ps_place(what="local_rank", name=name)


def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """The number of workers, read at run time.

    Args:
        process_set_id: of a `ProcessSet`: how many workers that has. Default: all workers.
        name: a name for the operation.

    Returns:
        An int32 scalar.

    Raises:
        ValueError: there is no such process set. Otherwise see `rank_op`.

    Example:

    >>> mean = total / tf.cast(tf_byteps.size_op(), tf.float32)
    """
    if process_set_id:
        return tf.constant(len(process_sets.by_id(process_set_id).ranks), name=name)
    return kernels().byte_ps_place(what="size", name=name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Whether this worker is in a process set.

    Args:
        process_set_id: of the `ProcessSet`. Default: all workers.
        name: a name for the operation.

    Returns:
        An int32 scalar, 1 or 0.

    Raises:
        ValueError: there is no such process set.

    Example:

    >>> is_even = tf_byteps.process_set_included_op(even.process_set_id)
    """
    included = process_set_id == 0 or process_sets.by_id(process_set_id).included()
    return tf.constant(int(bool(included)), name=name)


def local_size_op(name: str | None = None) -> tf.Tensor:
    """The number of workers on this machine, read at run time.

    Args:
        name: a name for the operation.

    Returns:
        An int32 scalar.

    Raises:
        See `rank_op`.

    Example:

    >>> threads = tf_byteps.local_size_op() * 2
    """
    return kernels().byte_ps_place(what="local_size", name=name)
