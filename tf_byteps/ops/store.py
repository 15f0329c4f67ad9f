"""Asynchronous exchanges: servers hold a value, and answer each change of it at once."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.ops.library import kernels, token

#: No worker waits for another one. See kUnboundedStaleness in cc/base/tensor_description.h.
UNBOUNDED = -1

_DTYPES = (tf.float32, tf.float64, tf.int8, tf.uint8, tf.int32, tf.int64)


def check_job() -> None:
    """Refuses jobs that cannot have a store.

    Raises:
        ValueError: the job is elastic or deterministic.
        BytePSError: `tf_byteps.init()` was not called.
    """
    config = runtime.config()
    if config.elastic:
        raise ValueError(
            "an asynchronous exchange continues from what servers hold, and an elastic job gets "
            "new servers' values when its workers change: train synchronously, or start the job "
            "without elastic training"
        )
    if config.deterministic and runtime.size() > 1:
        raise ValueError(
            "an asynchronous exchange depends on the order in which workers push, and the job is "
            "deterministic: choose one of them"
        )


def wide(value: Any) -> tf.Tensor:
    """A weight's value, at least as wide as float32: the servers add small changes."""
    value = tf.convert_to_tensor(value)
    return tf.cast(value, tf.float32) if value.dtype.size < 4 else tf.identity(value)


def exchange(
    tensors: Sequence[Any], exchange_names: Sequence[str], priority: int, staleness: int = UNBOUNDED
) -> list[tf.Tensor]:
    """Adds changes to what the servers hold.

    The operation runs on the CPU: each process is a worker of its own, also where several GPUs
    share a host. Costs each worker the bytes of the tensors once up and once down, whatever the
    number of workers.

    Args:
        tensors: of the dtypes that can be added without rounding to fewer bits.
        exchange_names: of each. A worker's first push of a name is its initial value.
        priority: of the first; falls by one from each to the next, but for a learned one.
        staleness: by how many pushes a worker may be ahead of the slowest.

    Returns:
        What the servers hold then.

    Raises:
        TypeError: a tensor is sparse, or of a dtype that would round small changes away.
    """
    for tensor, name in zip(tensors, exchange_names, strict=True):
        if not isinstance(tensor, tf.Tensor):
            raise TypeError(
                f"'{name}': an asynchronous exchange takes dense tensors, got a "
                f"{type(tensor).__name__}: pass sparse_as_dense=True, or tf.convert_to_tensor of it"
            )
        if tensor.dtype not in _DTYPES:
            raise TypeError(
                f"'{name}': an asynchronous exchange of {tensor.dtype.name} would round small "
                "changes away: keep the weights in float32"
            )
    with tf.device("CPU:0"):
        return [
            kernels().byte_ps_store(
                token(name),
                tensor,
                tensor_name=name,
                priority=priority if priority < 0 else priority - index,
                staleness=staleness,
            )
            for index, (tensor, name) in enumerate(zip(tensors, exchange_names, strict=True))
        ]
