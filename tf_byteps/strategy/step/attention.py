"""Attention of Keras's layers by cuDNN, in the steps of a strategy with `flash_attention=True`."""

from __future__ import annotations

import logging
import numbers
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_byteps.gradients.replica import in_our_replica
from tf_byteps.ops.compiled import flash_attention as cudnn
from tf_byteps.ops.compiling import is_compiled
from tf_byteps.types import TensorLike

_logger = logging.getLogger("tf_byteps")
_reported: set[str] = set()


def attend(
    original: Callable[..., tf.Tensor],
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    bias: tf.Tensor | None = None,
    mask: TensorLike | None = None,
    scale: float | None = None,
    is_causal: bool = False,
    flash_attention: bool | None = None,
    attn_logits_soft_cap: float | None = None,
) -> tf.Tensor:
    """Replaces `keras.src.backend.tensorflow.nn.dot_product_attention`.

    What cuDNN cannot compute is left to Keras, and said once for each reason.
    """
    strategy: Any = tf.distribute.get_strategy()
    if not (in_our_replica() and strategy.flash_attention):
        given = (bias, mask, scale, is_causal, flash_attention, attn_logits_soft_cap)
        return original(query, key, value, *given)
    tensors = [tf.convert_to_tensor(each) for each in (query, key, value)]
    mask = None if mask is None else tf.convert_to_tensor(mask)
    reason = _obstacle_in_form(tensors, bias, scale, attn_logits_soft_cap)
    reason = reason or cudnn.obstacle(*tensors, mask=mask, is_causal=is_causal)
    if reason is not None:
        _say(reason)
        # Without the layer's own `flash_attention`, which Keras refuses on TensorFlow.
        return original(query, key, value, bias, mask, scale, is_causal, None, attn_logits_soft_cap)
    width: Any = tensors[0].shape[-1]
    factor = width**-0.5 if scale is None else float(scale)
    return cudnn.flash_attention(*tensors, mask=mask, scale=factor, is_causal=is_causal)


def _obstacle_in_form(
    tensors: list[tf.Tensor], bias: object, scale: object, soft_cap: object
) -> str | None:
    if any(each.shape.rank != 4 for each in tensors):
        return "queries, keys and values do not have four dimensions"
    if bias is not None:
        return "a bias is added to its scores"
    if soft_cap is not None:
        return "its scores are capped"
    return None if isinstance(scale, numbers.Real | None) else "its scale is a tensor"


def _say(reason: str) -> None:
    """Once, and not of what is traced to build a model, which nobody computes."""
    if reason in _reported or not is_compiled():
        return
    _reported.add(reason)
    _logger.info("flash_attention=True: Keras computes an attention, because %s", reason)
