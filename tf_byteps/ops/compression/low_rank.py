"""PowerSGD: gradients of matrices travel as two narrow matrices whose product is near them.

After "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization" (NeurIPS'19).
A gradient M of a rows and b columns plus what was lost before (error feedback) becomes P = M Q, of
r columns, which is averaged and made orthonormal, and Q = M^T P, which is averaged and begins the
next step (warm start). The result is P Q^T. Both are ordinary averages: servers know nothing of it.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_byteps.exchange.compressor import is_long
from tf_byteps.exchange.power_sgd import PowerSGDCompressor
from tf_byteps.private.tensorflow import ResourceVariable

# A function of tensors and names that returns their averages; none waits for another.
Average = Callable[[Sequence[Any], Sequence[str]], Sequence[Any]]


def shortens(compression: object, tensor: object) -> bool:
    """Whether a tensor is a matrix that `average` is for, and the compression asks for it."""
    if not isinstance(compression, PowerSGDCompressor) or not isinstance(tensor, tf.Tensor):
        return False
    if not tensor.shape.is_fully_defined():
        return False
    if tensor.shape.rank < 2 or not tensor.dtype.is_floating or not is_long(tensor):
        return False
    rows, columns = _matrix_shape(tensor.shape)
    return (rows + columns) * compression.rank < rows * columns


@dataclasses.dataclass(frozen=True)
class _State:
    lost: Any  # of this worker's gradients, a variable of the matrix's shape
    right: Any  # Q, a variable, the same on all workers


# By name of the exchange, shape and rank, as the engine's residuals: for as long as the process.
_states: dict[tuple[str, tuple[int, int], int], _State] = {}


class SavedState(NamedTuple):
    """What a worker keeps of a matrix's gradient, for a training that goes on elsewhere."""

    name: str  # of its exchange
    shape: tuple[int, int]
    rank: int
    lost: np.ndarray
    right: np.ndarray


def states() -> list[SavedState]:
    """What this worker keeps of all matrices.

    Returns:
        A list, empty without `powersgd`.
    """
    return [
        SavedState(*key, lost=state.lost.numpy(), right=state.right.numpy())
        for key, state in _states.items()
    ]


def restore(saved: Iterable[SavedState]) -> None:
    """Lets gradients of these names, shapes and ranks go on with what `states` returned.

    Args:
        saved: of this worker or, if it is another process, of the one in whose place it is.
    """
    for each in saved:
        state = _state(each.name, each.shape, each.rank)
        state.lost.assign(each.lost)
        state.right.assign(each.right)


def average(
    tensors: Sequence[tf.Tensor],
    names: Sequence[str],
    compressors: Sequence[PowerSGDCompressor],
    average_all: Average,
) -> list[tf.Tensor]:
    """Averages matrices over the workers, nearly.

    Args:
        tensors: what `shortens` says yes to.
        names: of their exchanges, which their state belongs to.
        compressors: of each.
        average_all: averages tensors as they are.

    Returns:
        The list of averages, the same on all workers.
    """
    shapes = [_matrix_shape(tensor.shape) for tensor in tensors]
    states = [
        _state(name, shape, each.rank)
        for name, shape, each in zip(names, shapes, compressors, strict=True)
    ]
    matrices = [
        tf.reshape(tf.cast(tensor, tf.float32), shape) + state.lost
        for tensor, shape, state in zip(tensors, shapes, states, strict=True)
    ]
    lefts = average_all(
        [matrix @ state.right for matrix, state in zip(matrices, states, strict=True)],
        [f"{name}/P" for name in names],
    )
    lefts = [tf.linalg.qr(_scaled(left))[0] for left in lefts]
    rights = average_all(
        [
            tf.matmul(matrix, left, transpose_a=True)
            for matrix, left in zip(matrices, lefts, strict=True)
        ],
        [f"{name}/Q" for name in names],
    )
    return [
        tf.cast(tf.reshape(_finished(*each), tensor.shape), tensor.dtype)
        for tensor, each in zip(
            tensors, zip(matrices, lefts, rights, states, strict=True), strict=True
        )
    ]


def _finished(matrix: tf.Tensor, left: tf.Tensor, right: tf.Tensor, state: _State) -> tf.Tensor:
    """The average; a step that is not finite on any worker changes no state."""
    result = tf.matmul(left, right, transpose_b=True)
    is_finite = tf.reduce_all(tf.math.is_finite(result))
    state.lost.assign(tf.where(is_finite, matrix - result, state.lost))
    state.right.assign(tf.where(is_finite, _scaled(right), state.right))
    return result


def _scaled(matrix: tf.Tensor) -> tf.Tensor:
    """A matrix whose largest number is 1, of one whose scale does not matter.

    Products and squares of gradients as large as 1e25 or as small as 1e-25 do not fit into float32.
    """
    return tf.math.divide_no_nan(matrix, tf.reduce_max(tf.abs(matrix)))


def _state(name: str, shape: tuple[int, int], rank: int) -> _State:
    key = (name, shape, rank)
    if key not in _states:
        # Not tf.Variable, which a strategy would make one of its own.
        with tf.init_scope():
            seed = [zlib.crc32(name.encode()), rank]
            first = tf.random.stateless_normal([shape[1], rank], tf.cast(seed, tf.int64))
            _states[key] = _State(
                ResourceVariable(tf.zeros(shape), trainable=False),
                ResourceVariable(first, trainable=False),
            )
    return _states[key]


def _matrix_shape(shape: tf.TensorShape) -> tuple[int, int]:
    *others, columns = (size or 0 for size in shape.as_list())
    return math.prod(others), columns
