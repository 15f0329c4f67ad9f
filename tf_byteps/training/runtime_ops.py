"""The runtime's numbers as tensors that are read when they are needed, not when they are traced.

None of them can be compiled by XLA."""

import tensorflow as tf

from tf_byteps.exchange.unsupported import refuse_process_set
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
        process_set_id: must be 0: there are no process sets.
        name: a name for the operation.

    Returns:
        An int32 scalar.

    Raises:
        NotImplementedError: another process set is asked for. Otherwise see `rank_op`.

    Example:

    >>> mean = total / tf.cast(tf_byteps.size_op(), tf.float32)
    """
    refuse_process_set(process_set_id or None)
    return kernels().byte_ps_place(what="size", name=name)


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
