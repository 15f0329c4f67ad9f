"""Output gradients of float8 layers, measured in units of the whole batch's.

A worker's loss is a mean over its own rows, so that gradients of its outputs are larger than those
of one process, by the batch's rows over its own. Keras encodes them by a scale that it finds from
the largest ones of past steps. Within a training step that scale and history are the whole batch's
in the variables, and this worker's where the layer computes with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tf_byteps.ops.custom_gradients import custom_gradient
from tf_byteps.strategy.step import local_batch
from tf_byteps.types import Variable
from tf_byteps.wrapping import Change

_NAMES = ("outputs_grad_scale", "outputs_grad_amax_history")


def changes() -> list[Change]:
    """The changes to Keras, as `keras_hooks.training.changes` returns them."""
    return [
        (layer, "_float8_call", _float8_call)
        for layer in (keras.layers.Dense, keras.layers.EinsumDense)
    ]


def _float8_call(
    original: Callable[..., Any], self: keras.layers.Layer, *args: object, **kwargs: object
) -> Any:
    batch = local_batch.current()
    if batch is None or batch._totals is None:  # not a training step that weights by rows
        return original(self, *args, **kwargs)
    workers = tf.cast(batch._totals[1], tf.float64)
    share = tf.cast(batch.gradient_factor / workers, tf.float32)
    share = tf.where(share > 0, share, 1.0)  # without rows nothing is measured
    kept = {name: self.__dict__[name] for name in _NAMES}
    self.__dict__.update({name: _of_this_worker(each, share) for name, each in kept.items()})
    try:
        return original(self, *args, **kwargs)
    finally:
        self.__dict__.update(kept)


def _of_this_worker(variable: Variable, share: tf.Tensor) -> Any:
    """A variable's value in this worker's units. Its gradient is its new value, and goes back."""

    @custom_gradient
    def divided(value: tf.Tensor) -> Any:
        return value / share, lambda new_value: new_value * share

    return divided(tf.convert_to_tensor(variable))
