"""Norms that all workers share: units in which their gradients become whole numbers.

Servers add whole numbers exactly, if one means the same on all workers (cc/codec/thc_codec.h). So
each block of a tensor is divided by the largest of the workers' norms before it is sent, and the
sum is multiplied by it. The norms are exchanged first, 32 bits for 4096 elements.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from tf_byteps.exchange.compressor import is_long
from tf_byteps.ops.library import kernels

# Elements that have a norm in common; those of a block of the codec, though parts may begin
# anywhere.
_BLOCK = 4096


def are_needed(compression: object, tensor: tf.Tensor) -> bool:
    """Whether a tensor's norms must be shared before it is sent.

    Args:
        compression: what `resolve` returned.
        tensor: what its `compress` returned.

    Returns:
        False for a codec that needs none, and for a tensor that is too short to be compressed.
    """
    return getattr(compression, "shares_norms", False) and is_long(tensor)


def shape_of(tensor: tf.Tensor) -> list[int]:
    """The shape of what `own` returns for a tensor whose shape is known."""
    return [-(-(tensor.shape.num_elements() or 0) // _BLOCK)]


def own(tensor: tf.Tensor) -> tf.Tensor:
    """The root mean squares of a float32 tensor's blocks on this worker, times a host's GPUs.

    These add up before anything is encoded: their sum must fit in the unit, too. Their number may
    differ between hosts, but not the unit: so it counts before the largest norms are found.

    Args:
        tensor: a `tf.Tensor` of any shape.

    Returns:
        A tensor of one axis, of which no gradient comes back. None is less than the smallest normal
        number: a block of smaller numbers has that.
    """
    blocks = _blocks(tensor)
    # Squares of numbers above 1e19 are infinite, those of numbers below 1e-19 are zeros.
    largest = tf.reduce_max(tf.abs(blocks), axis=1)
    relative = tf.math.divide_no_nan(blocks, largest[:, tf.newaxis])
    norms = largest * tf.sqrt(tf.reduce_sum(tf.square(relative), axis=1) / _BLOCK)
    norms = tf.where(tf.math.is_inf(largest), largest, norms)  # and not NaN, as infinity / infinity
    smallest = tf.cast(np.finfo(np.float32).tiny, norms.dtype)
    norms = tf.where(norms < smallest, smallest, norms)  # NaN stays
    if tf.config.list_logical_devices("GPU"):
        norms *= tf.cast(kernels().byte_ps_place(what="local_size"), norms.dtype)
    return tf.stop_gradient(norms)


def divided(tensor: tf.Tensor, norms: tf.Tensor) -> tf.Tensor:
    """A tensor in units of norms.

    Args:
        tensor: a float32 tensor of any shape.
        norms: of its blocks, the largest ones of all workers.

    Returns:
        A tensor of the same shape.
    """
    return _like(tensor, tf.math.divide_no_nan(_blocks(tensor), norms[:, tf.newaxis]))


def multiplied(tensor: tf.Tensor, norms: tf.Tensor) -> tf.Tensor:
    """A tensor of what `divided` returned, with its norms again."""
    return _like(tensor, _blocks(tensor) * norms[:, tf.newaxis])


def _blocks(tensor: tf.Tensor) -> tf.Tensor:
    flat = tf.reshape(tensor, [-1])
    return tf.reshape(tf.pad(flat, [[0, -_size(flat) % _BLOCK]]), [-1, _BLOCK])


def _like(tensor: tf.Tensor, blocks: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tf.reshape(blocks, [-1])[: _size(tensor)], _shape(tensor))


def _shape(tensor: tf.Tensor) -> tf.TensorShape | tf.Tensor:
    return tensor.shape if tensor.shape.is_fully_defined() else tf.shape(tensor)


def _size(tensor: tf.Tensor) -> Any:
    """How many elements; as a number where it is known, which XLA needs."""
    known = tensor.shape.num_elements()
    return tf.size(tensor) if known is None else known
