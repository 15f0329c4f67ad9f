"""Exchanges of which each worker gets another result, eager and within `tf.function`."""

from __future__ import annotations

from typing import Any, overload

import tensorflow as tf

from tf_byteps.exchange.arguments import checked_priority
from tf_byteps.exchange.process_sets import ProcessSet, scope_of
from tf_byteps.ops import (
    bitcast,
    compiling,
    gradients as _gradients,  # noqa: F401  (registers them)
)
from tf_byteps.ops.arguments import checked_tensor, exchange_name, names_for
from tf_byteps.ops.error_text import in_plain_words
from tf_byteps.ops.library import kernels, token
from tf_byteps.ops.process_sets import size_in
from tf_byteps.ops.refusals import reported_to_the_others
from tf_byteps.types import ExchangeInput, TensorLike


@overload
def alltoall(
    tensor: ExchangeInput,
    splits: None = None,
    name: str | None = None,
    priority: int | None = None,
    process_set: ProcessSet | None = None,
) -> tf.Tensor: ...
@overload
def alltoall(
    tensor: ExchangeInput,
    splits: TensorLike,
    name: str | None = None,
    priority: int | None = None,
    process_set: ProcessSet | None = None,
) -> tuple[tf.Tensor, tf.Tensor]: ...
@in_plain_words
@reported_to_the_others(names_for("alltoall"))
def alltoall(
    tensor: ExchangeInput,
    splits: TensorLike | None = None,
    name: str | None = None,
    priority: int | None = None,
    process_set: ProcessSet | None = None,
) -> Any:
    """Sends each worker its rows of a tensor, and receives what the workers have for this one.

    A worker's rows for others go to the servers once, and what it receives of them comes from there
    once, whatever the number of workers. Its rows for itself do not travel. All of it is one
    exchange of one server, as `gather`. On a GPU the rows are copied to host memory and back.

    If a server is lost after it has answered some of the workers only, the others get an error:
    nobody else has what was sent to them. An elastic job goes back to its last commit then.

    Args:
        tensor: a `tf.Tensor` of shape `[rows, ...]`; `rows` may differ between the workers and may
            be 0, the rest of the shape may not. Dtypes as for `broadcast`, but no strings.
        splits: how many rows go to each worker: a vector of `size()` int32 or int64, in rank order,
            whose sum is `rows`. The rows are in the order of the ranks that they go to. Default:
            the same number for each; `rows` must then be a multiple of `size()`.
        name: see `push_pull`.
        priority: see `push_pull`.
        process_set: see `push_pull`. Then `splits` are for its workers, in the order of their
            ranks.

    Returns:
        A tensor of shape `[received rows, ...]` and the same dtype, in the order of the ranks that
        have sent the rows. If `splits` is given: a tuple of that tensor and of how many rows each
        worker has sent, a vector of `size()` numbers of the dtype of `splits`.

    Raises:
        TypeError: the dtype cannot be exchanged, or `splits` are no integers.
        ValueError: the tensor is a scalar, or `splits` is no vector, or it is not given and the
            rows cannot be split evenly.
        NotImplementedError: it is called in a function that XLA compiles.
        tf.errors.InvalidArgumentError: `splits` has another length than `size()`, a negative
            number, or another sum than `rows`.
        tf.errors.FailedPreconditionError: see `push_pull`.
        tf.errors.UnavailableError: a worker or server was lost.

    Example:

    >>> rows, counts = tf_byteps.alltoall(tf.constant([1, 2, 3]), splits=[1, 2], name="ids")
    """
    tensor = checked_tensor(tensor, "alltoall", copies=True)
    if tensor.dtype == tf.string:
        raise TypeError("alltoall cannot exchange a tensor of dtype string: encode it as numbers")
    if tensor.shape.rank == 0:
        raise ValueError("a scalar has no rows to split: reshape it to [1]")
    refuse_compiled("alltoall")
    name = exchange_name(name, "alltoall", scope_of(process_set))
    rows = tf.shape(tensor, out_type=tf.int64)[0]
    sent = _even_splits(rows, name) if splits is None else _checked_splits(splits)
    result, received = kernels().byte_ps_all_to_all(
        token(name),
        bitcast.encode(tensor),
        tf.cast(sent, tf.int64),
        tensor_name=name,
        priority=checked_priority(priority),
    )
    result = bitcast.decode(result, tensor.dtype)
    return result if splits is None else (result, tf.cast(received, sent.dtype))


def refuse_compiled(what: str) -> None:
    """Raises NotImplementedError in a function that XLA compiles: how many rows a worker gets is
    known only when it runs."""
    if compiling.is_compiled():
        raise NotImplementedError(
            f"{what} does not work in a function that XLA compiles: the number of rows that it "
            "gives is known only when it runs; call it outside of that function, or compile with "
            "jit_compile=False"
        )


def _checked_splits(splits: TensorLike) -> tf.Tensor:
    vector = tf.convert_to_tensor(splits)
    if vector.shape.rank == 1 and vector.shape[0] == 0:
        vector = tf.cast(vector, tf.int32)  # of an empty list
    if vector.dtype not in (tf.int32, tf.int64):
        raise TypeError(f"splits must be int32 or int64, got {vector.dtype.name}")
    if vector.shape.rank not in (None, 1):
        raise ValueError(
            f"splits must be a vector of one number for each worker, got shape {vector.shape}"
        )
    return vector


def _even_splits(rows: tf.Tensor, name: str) -> Any:
    size = tf.cast(size_in(name), tf.int64)
    if tf.executing_eagerly() and int(rows) % int(size) != 0:
        raise ValueError(
            f"{int(rows)} rows cannot be split evenly among {int(size)} workers: give splits, "
            "the number of rows for each worker"
        )
    return tf.fill([size], rows // size)
