"""Attention by one kernel of cuDNN's, in functions that XLA compiles for a GPU.

Keras on TensorFlow writes the scores of all queries and keys to memory; Keras on JAX calls cuDNN,
which does not (FlashAttention, https://arxiv.org/abs/2205.14135). XLA is the same for both.
"""

from typing import Any

import tensorflow as tf

from tf_byteps.ops.compiling import is_compiled
from tf_byteps.ops.device import own_device
from tf_byteps.ops.library import kernels

_MOST_WIDTH = 128
_WIDTHS = 8  # a multiple of it
_OLDEST_GPU = (8, 0)
# Added to the score of a key that is masked.
_MASKED = -(2.0**41)


def obstacle(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, mask: tf.Tensor | None, is_causal: bool
) -> str | None:
    """Why the kernel cannot compute this attention, where it is traced.

    Args:
        query: of shape (batch, length, heads, width).
        key, value: likewise, with a length of their own.
        mask: `bool`, of four dimensions that broadcast to (batch, heads, queries, keys), or `None`.
        is_causal: whether no query looks at a later key.

    Returns:
        A part of a sentence, or `None` if the kernel can.
    """
    on_device = _obstacle_on_device()
    if on_device is not None:
        return on_device
    if not query.dtype == key.dtype == value.dtype or query.dtype not in (tf.bfloat16, tf.float16):
        return f"it computes in {query.dtype.name}, not in bfloat16 or float16"
    return _obstacle_in_shapes(query.shape, key.shape, value.shape, is_causal) or (
        None if mask is None else _obstacle_in_mask(query, key, mask)
    )


def _obstacle_in_shapes(
    query: tf.TensorShape, key: tf.TensorShape, value: tf.TensorShape, is_causal: bool
) -> str | None:
    width = query[-1]
    if width is None or width != key[-1] or width != value[-1]:
        return "queries, keys and values differ in width"
    if width % _WIDTHS or width > _MOST_WIDTH:
        return f"heads are {width} wide, not a multiple of {_WIDTHS} up to {_MOST_WIDTH}"
    if query[2] is None or query[2] != key[2] or query[2] != value[2]:
        return "queries, keys and values differ in their number of heads"
    if query[1] is None or key[1] is None or key[1] != value[1]:
        return "the lengths of its inputs are not known when it is traced"
    if is_causal and query[1] != key[1]:
        return "it is causal with more keys than queries, or fewer"
    return None


def _obstacle_in_mask(query: tf.Tensor, key: tf.Tensor, mask: tf.Tensor) -> str | None:
    if mask.dtype != tf.bool or mask.shape.rank != 4:
        return f"its mask has dtype {mask.dtype.name} and shape {mask.shape}"
    if query.dtype == tf.float16:
        return "float16 has no number that masks a score"
    lengths: list[Any] = [query.shape[1], key.shape[1]]
    if any(length % 2 for length in lengths):
        return "it has a mask, and an odd number of queries or keys"
    return None


def _obstacle_on_device() -> str | None:
    if not (is_compiled() and "GPU" in own_device()):
        return "XLA does not compile it for a GPU"
    gpu = tf.config.list_physical_devices("GPU")[0]
    capability = tf.config.experimental.get_device_details(gpu)["compute_capability"]
    return None if capability >= _OLDEST_GPU else "the GPU is older than compute capability 8.0"


def flash_attention(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    mask: tf.Tensor | None,
    scale: float,
    is_causal: bool,
) -> tf.Tensor:
    """The attention of queries to keys and values, where `obstacle` finds none.

    Args:
        query, key, value, mask, is_causal: see `obstacle`.
        scale: what the scores are multiplied by before the softmax.

    Returns:
        A tensor of the shape and dtype of `query`. It has a gradient, which has none.
    """
    if mask is None:
        return _attend(query, key, value, [], scale, is_causal)
    lengths: list[Any] = [query.shape[1], key.shape[1]]
    sees: Any = mask
    if is_causal:
        sees = tf.logical_and(sees, tf.linalg.band_part(tf.ones(lengths, tf.bool), -1, 0))
    sees = tf.broadcast_to(sees, tf.concat([tf.shape(sees)[:2], lengths], 0))
    bias = tf.where(sees, tf.zeros([], query.dtype), tf.constant(_MASKED, query.dtype))
    output = _attend(query, key, value, [bias], scale, False)
    return _with_mean_where_nothing_is_seen(output, value, sees)


def _attend(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    bias: list[tf.Tensor],
    scale: float,
    is_causal: bool,
) -> tf.Tensor:
    output, _ = kernels().byte_ps_attention(
        query, key, value, bias, scale=scale, is_causal=is_causal
    )
    return output


def _with_mean_where_nothing_is_seen(
    output: tf.Tensor, value: tf.Tensor, sees: tf.Tensor
) -> tf.Tensor:
    """A query that may look at no key looks at all alike, as in Keras.

    The kernel is of no use there. In its backward pass it computes a probability from a score and
    the logarithm of all scores' sum, which is lost beside so large a bias.
    """
    sees_nothing = tf.logical_not(tf.reduce_any(sees, axis=-1))  # (batch, heads, queries)
    sees_nothing = tf.expand_dims(tf.transpose(sees_nothing, [0, 2, 1]), -1)
    mean = tf.reduce_mean(tf.cast(value, tf.float32), axis=1, keepdims=True)
    return tf.where(sees_nothing, tf.cast(mean, output.dtype), output)


@tf.RegisterGradient("BytePSAttention")
def _gradient(operation: tf.Operation, gradient: tf.Tensor, _: object) -> list[Any]:
    *inputs, output, statistics = *operation.inputs, *operation.outputs
    query, key, value, *bias = inputs
    gradients = kernels().byte_ps_attention_gradient(
        query,
        key,
        value,
        bias,
        statistics,
        output,
        gradient,
        scale=operation.get_attr("scale"),
        is_causal=operation.get_attr("is_causal"),
    )
    return [*gradients, *[None] * len(bias)]


@tf.RegisterGradient("BytePSAttentionGradient")
def _second_gradient(_: tf.Operation, *__: tf.Tensor) -> Any:
    raise NotImplementedError(
        "the gradient of flash attention has no gradient itself, which this step asks for: leave "
        "flash_attention=True out of BytePSStrategy"
    )
