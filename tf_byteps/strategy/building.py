"""Builds a Keras model before it trains, without taking a batch from the user's input.

Under a strategy Keras opens the input once more and reads a batch, to see its shapes. That batch is
lost to the training if it comes from a generator, and a seeded shuffle goes on to its next order.
"""

import enum

import keras
import tensorflow as tf
from keras import tree


class Told(enum.IntEnum):
    """What a dataset says about the shapes of its batches."""

    NOTHING = 0
    RANKS = 1
    SHAPES = 2  # but for the batch's own length


def told(element_spec):
    """What the `element_spec` of a dataset of batches says, as a `Told`."""
    return min(map(_told_of, tf.nest.flatten(element_spec)), default=Told.SHAPES)


def _told_of(spec):
    if isinstance(spec, (tf.OptionalSpec, tf.RaggedTensorSpec)):
        return Told.SHAPES  # no value is passed; nothing more is known of a ragged batch
    if spec.shape.rank is None:
        return Told.NOTHING
    return Told.SHAPES if spec.shape[1:].is_fully_defined() else Told.RANKS


def must_read(model, dataset_tells):
    """Whether a batch must be read to build a model, its metrics and its loss.

    Args:
        model: a compiled `keras.Model`.
        dataset_tells: a `Told`.
    """
    layers_are_built = all(layer.built for layer in model._flatten_layers())
    return dataset_tells < (Told.RANKS if layers_are_built else Told.SHAPES)


def symbolic_batch(element_spec):
    """What Keras can build a model from instead of a batch.

    Args:
        element_spec: of a dataset of batches, of known ranks.

    Returns:
        The same structure of `keras.KerasTensor`, with `None` where Keras passes no value.
    """

    def symbolic(spec):
        if isinstance(spec, tf.OptionalSpec):
            return None
        return keras.KerasTensor(spec.shape, keras.backend.standardize_dtype(spec.dtype))

    return tree.map_structure(symbolic, element_spec)
