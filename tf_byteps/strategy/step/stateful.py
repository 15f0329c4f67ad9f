"""Recurrent layers that keep a state for each row from batch to batch: of a worker's piece."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tf_byteps.strategy.step import piece_rows, predictions


def checking_rows(
    strategy: tf.distribute.Strategy, fn: Callable[..., Any], step: Callable[..., Any]
) -> Any:
    """Makes a step of a stateful model fail by a sentence if its model is for other batches.

    Without it TensorFlow fails in an operation that names neither the layer nor the batch.

    Args:
        strategy: the `BytePSStrategy` that runs it.
        fn: what was given to `strategy.run`.
        step: what is to be run instead.

    Returns:
        A function with the arguments of `step`.
    """
    model = getattr(fn, "__self__", None) or predictions.predicting()
    workers = strategy.num_replicas_in_sync
    if workers == 1 or not isinstance(model, keras.Model):
        return step
    rows = {tensor.shape[0] for tensor in getattr(model, "inputs", None) or []} - {None}
    layers = [layer for layer in model._flatten_layers() if getattr(layer, "stateful", False)]
    if not rows or not any(isinstance(layer, keras.layers.RNN) for layer in layers):
        return step
    expected = min(rows)
    message = (
        f"the model {model.name!r} with the stateful layer {layers[0].name!r} is made for batches "
        f"of {expected} rows, and this worker's piece of the batch has another number: give "
        "keras.Input the batch size of a piece, which is that of the batch divided by "
        f"{workers} workers, and leave out batches that are not cut evenly"
    )

    def checked(data: object) -> Any:
        found, known = piece_rows.rows_of(data)
        if known not in (None, expected):
            raise ValueError(message)  # before Keras does, who knows nothing of pieces
        check = tf.debugging.assert_equal(found, tf.cast(expected, found.dtype), message=message)
        with tf.control_dependencies([] if check is None else [check]):
            return step(tf.nest.map_structure(_identity, data, expand_composites=True))

    return checked


def _identity(value: object) -> Any:
    return tf.identity(value) if tf.is_tensor(value) else value
