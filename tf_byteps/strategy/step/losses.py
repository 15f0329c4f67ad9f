"""Losses of this worker's rows, in units that make their weighted mean the loss of the batch.

Within a Keras step of a `BytePSStrategy` a loss is a mean over the worker's own rows. The gradients
carry the weight of those rows (`local_batch.weighted`), and so do the metrics. A loss that is no
mean over rows is divided by that weight here, the worker's share of the rows:

| loss | in one process | here, before its weight |
|---|---|---|
| reduction "sum" | the sum over all rows | the sum over own rows / share |
| a mean over what a mask leaves | sum / left | own sum / left on all workers / share |
| "mean_with_sample_weight" | sum / weights | own sum / weights of all workers / share |
| a tensor of losses that a tape is given | the sum over all rows | the sum over own rows / share |
| one number for all rows, weighted | it x the mean weight | own x the mean weight of all rows |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.exchange.strategies import is_ours
from tf_byteps.gradients.replica import in_our_scope
from tf_byteps.ops import Sum, names, push_pull
from tf_byteps.private.keras import keras_loss
from tf_byteps.strategy.step import local_batch
from tf_byteps.types import TensorLike


def scale(original: Callable[..., Any], value: tf.Tensor) -> Any:
    """`scale_loss_for_distribution` of Keras: only if the user scales losses, too."""
    batch = local_batch.current()
    if batch is None:
        return value if in_our_scope() else original(value)
    return value / tf.cast(runtime.size(), value.dtype) if batch.scaling.is_by_user else value


def unscale(original: Callable[..., Any], value: tf.Tensor) -> Any:
    """`unscale_loss_for_distribution` of Keras, the inverse."""
    batch = local_batch.current()
    if batch is None:
        return value if in_our_scope() else original(value)
    return value * tf.cast(runtime.size(), value.dtype) if batch.scaling.is_by_user else value


def reduce_weighted_values(
    original: Callable[..., Any],
    values: TensorLike,
    sample_weight: TensorLike | None = None,
    mask: TensorLike | None = None,
    reduction: str = "sum_over_batch_size",
    dtype: str | None = None,
) -> Any:
    """Replaces the function of Keras that makes one number of a loss's values."""
    batch = local_batch.current()
    if batch is None or batch.is_local or reduction in (None, "none"):
        return original(values, sample_weight, mask, reduction, dtype)
    if tf.convert_to_tensor(values).shape.rank == 0:
        if sample_weight is None or mask is not None or reduction == "mean_with_sample_weight":
            return original(values, sample_weight, mask, reduction, dtype)
        return _times_weights(tf.cast(values, dtype) if dtype else values, sample_weight, reduction)
    loss = original(values, sample_weight, mask, reduction, dtype)
    if reduction == "sum":
        return divided_by_share(loss, batch)
    weights: Any = mask
    if reduction == "mean_with_sample_weight":
        weights = keras_loss.apply_mask(sample_weight, mask, tf.float64, reduction)
    if weights is None:
        return loss
    own = tf.stop_gradient(tf.reduce_sum(tf.cast(weights, tf.float64)))
    own = local_batch.contribution(own)
    total = push_pull(own, op=Sum, name=names.numbered("weights of a loss"))
    return _times(loss, tf.math.divide_no_nan(own, total * batch.share))


def _times_weights(loss: tf.Tensor, weights: TensorLike, reduction: str | None) -> Any:
    """One number for all rows, which Keras multiplies by each row's weight and then reduces."""
    weights = tf.cast(weights, tf.float64)
    own = tf.stack([tf.reduce_sum(weights), tf.cast(tf.size(weights), tf.float64)])
    own = local_batch.contribution(tf.stop_gradient(own))
    total, count = tf.unstack(push_pull(own, op=Sum, name=names.numbered("weights of a loss")))
    if reduction == "sum":
        return _times(loss, total)
    return keras_loss.scale_loss_for_distribution(_times(loss, total / count))


def divided_by_share(loss: tf.Tensor, batch: local_batch.LocalBatch) -> Any:
    """A sum over the worker's rows, in the unit of a mean over them."""
    divisor = batch.share
    if batch.scaling.is_by_user:
        divisor *= runtime.size()
    return _times(loss, tf.math.divide_no_nan(tf.ones_like(divisor), divisor))


def update_mean(
    original: Callable[..., Any],
    self: keras.metrics.Mean,
    values: TensorLike,
    sample_weight: TensorLike | None = None,
) -> Any:
    """`keras.metrics.Mean.update_state`: a number of the step, such as its loss, counts with the
    weight of the rows that it is a mean over."""
    batch = local_batch.current()
    if batch is not None and sample_weight is None:
        if tf.convert_to_tensor(values).shape.rank == 0:
            sample_weight = batch.rows if batch.is_local else batch.relative_share
    return original(self, values, sample_weight)


def compute_average_loss(
    original: Callable[..., Any],
    per_example_loss: TensorLike,
    sample_weight: TensorLike | None = None,
    global_batch_size: int | None = None,
    **options: object,
) -> Any:
    """Replaces `tf.nn.compute_average_loss`, which divides by the size of the global batch."""
    arguments = (per_example_loss, sample_weight, global_batch_size)
    loss = _in_replica(original, arguments, options)
    batch = local_batch.current()
    if batch is None:
        return loss
    batch.scaling.scaled_by_user()
    if global_batch_size is None:
        return loss
    return divided_by_share(loss, batch)  # that number is right whatever the worker's share is


def scale_regularization_loss(original: Callable[..., Any], regularization_loss: TensorLike) -> Any:
    """Replaces `tf.nn.scale_regularization_loss`."""
    batch = local_batch.current()
    if batch is not None:
        batch.scaling.scaled_by_user()
    return _in_replica(original, (regularization_loss,))


def _in_replica(
    function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any] | None = None
) -> Any:
    """Calls what works in replicas only: Keras builds models outside of any."""
    strategy = tf.distribute.get_strategy()
    if is_ours(strategy) and tf.distribute.in_cross_replica_context():
        return strategy.extended.call_for_each_replica(function, arguments, options)
    return function(*arguments, **options or {})


def _times(value: tf.Tensor, factor: tf.Tensor) -> Any:
    return value * tf.cast(factor, value.dtype)
