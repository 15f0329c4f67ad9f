"""Builds a Keras model before it trains, without taking a batch from the user's input.

Under a strategy Keras opens the input once more and reads a batch, to see its shapes. That batch is
lost to the training if it comes from a generator, and a seeded shuffle goes on to its next order.

Keras builds a model by calling it. One with a `train_step` of its own may have no `call`, or one
that takes something else, or layers that only the step uses. It is built by tracing the step once
more: everything must be there, with worker 0's values, before the first step. So must its
optimizers: a trace that shows that it must begin anew (see `step.scaling`) would lose what it has
created.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras import tree

from tf_byteps.exchange.optimizers import optimizers_of
from tf_byteps.types import TensorLike


class KnownShapes(enum.IntEnum):
    """What a dataset says about the shapes of its batches."""

    NOTHING = 0
    RANKS = 1
    SHAPES = 2  # but for the batch's own length


def known_shapes(element_spec: object) -> Any:
    """What the `element_spec` of a dataset of batches says, as a `KnownShapes`."""
    return min(map(_known_of, tf.nest.flatten(element_spec)), default=KnownShapes.SHAPES)


def _known_of(spec: tf.TensorSpec) -> Any:
    if isinstance(spec, (tf.OptionalSpec, tf.RaggedTensorSpec)):
        return KnownShapes.SHAPES  # no value is passed; nothing more is known of a ragged batch
    if spec.shape.rank is None:
        return KnownShapes.NOTHING
    return KnownShapes.SHAPES if spec.shape[1:].is_fully_defined() else KnownShapes.RANKS


def must_read(model: keras.Model, known: KnownShapes) -> bool:
    """Whether a batch must be read to build a model, its metrics and its loss.

    Args:
        model: a compiled `keras.Model`.
        known: a `KnownShapes`.
    """
    return known < (KnownShapes.RANKS if layers_are_built(model) else KnownShapes.SHAPES)


def layers_are_built(model: keras.Model) -> bool:
    """Whether all layers of a `keras.Model` have their weights."""
    return all(layer.built for layer in model._flatten_layers())


def has_own_step(model: keras.Model, name: str) -> bool:
    """Whether the class of a `keras.Model` defines the step of this name itself."""
    return getattr(type(model), name) is not getattr(keras.Model, name)


def build_by_tracing(model: keras.Model, step: Callable[..., Any], batch: object) -> None:
    """Creates what a step uses and is not there yet. Nothing is computed.

    Args:
        model: a compiled `keras.Model` of a `BytePSStrategy`, in its scope.
        step: its method for the step.
        batch: a structure of `tf.TypeSpec`, with `None` where Keras passes no value.
    """
    # A step that runs eagerly may do what no trace can.
    if _is_built(model) and (model.run_eagerly or all(each.built for each in optimizers_of(model))):
        return
    is_traced = False

    def once(data: Any) -> None:
        # TensorFlow traces again what has created variables. Now there is nothing left to create.
        nonlocal is_traced
        if not is_traced:
            is_traced = True
            model.distribute_strategy.run(step, args=(data,))

    try:
        tf.function(once, autograph=False).get_concrete_function(batch)
    except Exception:
        if not is_built_enough(model):
            raise


def is_built_enough(model: keras.Model) -> bool:
    """Whether a step can do without what could not be built for it: one process builds nothing, and
    a step that runs eagerly may want numbers, as a metric in NumPy does.
    """
    return model.run_eagerly and layers_are_built(model)


def _is_built(model: keras.Model) -> bool:
    parts = [layer for layer in model._flatten_layers() if _needs_building(layer)]
    parts += [part for part in (model._compile_metrics, model._compile_loss) if part is not None]
    return all(part.built for part in parts)


def _needs_building(layer: keras.layers.Layer) -> bool:
    return not isinstance(layer, keras.Model) or type(layer).call is not keras.Model.call


def batch_spec(element_spec: object) -> Any:
    """What `build_by_tracing` takes as the batch.

    Args:
        element_spec: of a dataset of batches.
    """
    return tf.nest.map_structure(
        lambda spec: None if isinstance(spec, tf.OptionalSpec) else spec, element_spec
    )


def spec_of_batch(batch: object) -> Any:
    """The same for a batch itself: a structure of tensors, arrays and `None`."""

    def spec(value: TensorLike) -> Any:
        if value is None:
            return None
        value = tf.convert_to_tensor(value) if not tf.is_tensor(value) else value
        if not isinstance(value, tf.Tensor):
            return tf.type_spec_from_value(value)
        return tf.TensorSpec([None, *value.shape[1:]], value.dtype)

    return tf.nest.map_structure(spec, batch)


def symbolic_batch(element_spec: object) -> Any:
    """What Keras can build a model from instead of a batch.

    Args:
        element_spec: of a dataset of batches, of known ranks.

    Returns:
        The same structure of `keras.KerasTensor`, with `None` where Keras passes no value.
    """

    def symbolic(spec: Any) -> Any:
        if isinstance(spec, tf.OptionalSpec):
            return None
        return keras.KerasTensor(spec.shape, keras.backend.standardize_dtype(spec.dtype))

    return tree.map_structure(symbolic, element_spec)
