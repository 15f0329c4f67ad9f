"""Exchanges of values: NumPy arrays or numbers in, NumPy arrays out. In eager code."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from tf_byteps import ops
from tf_byteps.exchange.compression import AnyCompressor
from tf_byteps.ops import Average, Compression, ReduceOp
from tf_byteps.training import scattering, variables
from tf_byteps.types import TensorLike


def push_pull(
    value: TensorLike,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: ReduceOp | str | None = None,
    compression: AnyCompressor = Compression.none,
) -> np.ndarray:
    """Combines a value elementwise over all workers.

    Args:
        value: a number, a NumPy array or a tensor; of the same shape and dtype on all workers.
        name: see `tf_byteps.push_pull`.
        average: see `tf_byteps.push_pull`.
        prescale_factor: see `tf_byteps.push_pull`.
        postscale_factor: see `tf_byteps.push_pull`.
        op: see `tf_byteps.push_pull`.
        compression: see `tf_byteps.push_pull`.

    Returns:
        A NumPy array of the same shape and dtype.

    Raises:
        See `tf_byteps.push_pull`.

    Example:

    >>> mean_loss = tf_byteps.keras.push_pull(np.float32(loss), name="loss")
    """
    result: Any = ops.push_pull(
        value,
        average=average,
        name=name,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        op=op,
        compression=compression,
    )
    return result.numpy()


allreduce = push_pull


def allgather(value: TensorLike, name: str | None = None) -> np.ndarray:
    """Concatenates the workers' arrays along axis 0, in rank order.

    Args:
        value: a NumPy array or tensor of shape `[rows, ...]`; `rows` may differ.
        name: see `tf_byteps.allgather`.

    Returns:
        A NumPy array of shape `[rows of all workers, ...]`.

    Raises:
        See `tf_byteps.allgather`.

    Example:

    >>> all_scores = tf_byteps.keras.allgather(np.array([score]), name="scores")
    """
    return ops.gather(value, name).numpy()


def reducescatter(
    value: TensorLike,
    name: str | None = None,
    op: ReduceOp | str = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> np.ndarray:
    """Combines an array elementwise over all workers; each gets its own rows of the result.

    Args:
        value: a NumPy array or tensor of shape `[rows, ...]`; the same on all workers.
        name: see `tf_byteps.push_pull`.
        op: see `tf_byteps.push_pull`.
        prescale_factor: see `tf_byteps.push_pull`.
        postscale_factor: see `tf_byteps.push_pull`.

    Returns:
        A NumPy array of shape `[own rows, ...]`: see `tf_byteps.reducescatter`.

    Raises:
        See `tf_byteps.reducescatter`.

    Example:

    >>> own = tf_byteps.keras.reducescatter(np.ones([tf_byteps.size(), 8]), name="statistics")
    """
    return scattering.reducescatter(
        value,
        op=op,
        name=name,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    ).numpy()


def broadcast(value: TensorLike, root_rank: int, name: str | None = None) -> np.ndarray:
    """Gives every worker the root's value.

    Args:
        value: a number, a NumPy array or a tensor; of the same shape and dtype on all workers.
        root_rank: the rank of the worker whose value counts.
        name: see `tf_byteps.broadcast`.

    Returns:
        A NumPy array of the same shape and dtype.

    Raises:
        See `tf_byteps.broadcast`.

    Example:

    >>> epoch = int(tf_byteps.keras.broadcast(epoch, root_rank=0, name="epoch"))
    """
    return np.asarray(ops.broadcast(value, root_rank, name))


def broadcast_global_variables(root_rank: int) -> NoReturn:
    """Raises RuntimeError: TensorFlow 2 keeps no list of all variables.

    Args:
        root_rank: unused.

    Raises:
        RuntimeError: always, with what to use instead.

    Example: see `callbacks.BroadcastGlobalVariablesCallback`.
    """
    variables.broadcast_global_variables(root_rank)
