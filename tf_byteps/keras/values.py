"""Exchanges of values: NumPy arrays or numbers in, NumPy arrays out. In eager code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import numpy as np

from tf_byteps.exchange.compression import AnyCompressor, Compression
from tf_byteps.exchange.process_sets import ProcessSet
from tf_byteps.exchange.reduce_op import Average, ReduceOp
from tf_byteps.keras.framework import current
from tf_byteps.types import TensorLike, Variable


def push_pull(
    value: TensorLike,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: ReduceOp | str | None = None,
    compression: AnyCompressor = Compression.none,
    process_set: ProcessSet | None = None,
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
        process_set: see `tf_byteps.push_pull`.

    Returns:
        A NumPy array of the same shape and dtype.

    Raises:
        See `tf_byteps.push_pull`.

    Example:

    >>> mean_loss = tf_byteps.keras.push_pull(np.float32(loss), name="loss")
    """
    return current().push_pull(
        value, name, average, prescale_factor, postscale_factor, op, compression, process_set
    )


allreduce = push_pull


def allgather(
    value: TensorLike, name: str | None = None, process_set: ProcessSet | None = None
) -> np.ndarray:
    """Concatenates the workers' arrays along axis 0, in rank order.

    Args:
        value: a NumPy array or tensor of shape `[rows, ...]`; `rows` may differ.
        name: see `tf_byteps.allgather`.
        process_set: see `tf_byteps.allgather`.

    Returns:
        A NumPy array of shape `[rows of all workers, ...]`.

    Raises:
        See `tf_byteps.allgather`.

    Example:

    >>> all_scores = tf_byteps.keras.allgather(np.array([score]), name="scores")
    """
    return current().allgather(value, name, process_set)


def reducescatter(
    value: TensorLike,
    name: str | None = None,
    op: ReduceOp | str = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet | None = None,
) -> np.ndarray:
    """Combines an array elementwise over all workers; each gets its own rows of the result.

    Args:
        value: a NumPy array or tensor of shape `[rows, ...]`; the same on all workers.
        name: see `tf_byteps.push_pull`.
        op: see `tf_byteps.push_pull`.
        prescale_factor: see `tf_byteps.push_pull`.
        postscale_factor: see `tf_byteps.push_pull`.
        process_set: see `tf_byteps.reducescatter`.

    Returns:
        A NumPy array of shape `[own rows, ...]`: see `tf_byteps.reducescatter`.

    Raises:
        See `tf_byteps.reducescatter`.

    Example:

    >>> own = tf_byteps.keras.reducescatter(np.ones([tf_byteps.size(), 8]), name="statistics")
    """
    return current().reducescatter(value, name, op, prescale_factor, postscale_factor, process_set)


def broadcast(
    value: TensorLike,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet | None = None,
) -> np.ndarray:
    """Gives every worker the root's value.

    Args:
        value: a number, a NumPy array or a tensor; of the same shape and dtype on all workers.
        root_rank: the rank of the worker whose value counts.
        name: see `tf_byteps.broadcast`.
        process_set: see `tf_byteps.broadcast`.

    Returns:
        A NumPy array of the same shape and dtype.

    Raises:
        See `tf_byteps.broadcast`.

    Example:

    >>> epoch = int(tf_byteps.keras.broadcast(epoch, root_rank=0, name="epoch"))
    """
    return current().broadcast(value, root_rank, name, process_set)


def broadcast_variables(
    variables: Iterable[Variable],
    root_rank: int,
    scope: str = "",
    process_set: ProcessSet | None = None,
    inplace: bool = True,
) -> None:
    """Sets variables to the root's values, on all workers. A collective.

    The workers first compare what they are about to set: path, dtype and shape of each variable,
    not the order. Call it before training, and after a restore that only one worker has done.

    Args:
        variables: a list (or other structure) of `keras.Variable`; on TensorFlow see
            `tf_byteps.broadcast_variables`.
        root_rank: an integer, the rank of the worker whose values count.
        scope: a prefix of the exchanges' names.
        process_set: see `tf_byteps.broadcast_variables`.
        inplace: accepted for compatibility and not used: variables are always set in place.

    Raises:
        ValueError: the workers' lists differ; all workers raise it and it names the difference.
            Or `root_rank` is not a rank of the job.
        TypeError: on JAX, if something else than a `keras.Variable` is given.
        NotImplementedError: `process_set` is given on JAX.

    Example:

    >>> tf_byteps.keras.broadcast_variables(model.variables, root_rank=0)
    """
    del inplace
    current().broadcast_variables(variables, root_rank, scope, process_set)


def broadcast_global_variables(root_rank: int) -> NoReturn:
    """Raises RuntimeError: Keras keeps no list of all variables.

    Args:
        root_rank: unused.

    Raises:
        RuntimeError: always, with what to use instead.

    Example: see `callbacks.BroadcastGlobalVariablesCallback`.
    """
    raise RuntimeError(
        "Keras keeps no list of all variables: call "
        f"tf_byteps.keras.broadcast_variables(model.variables, root_rank={root_rank}), or train "
        "with the callback tf_byteps.keras.callbacks.BroadcastGlobalVariablesCallback"
    )
