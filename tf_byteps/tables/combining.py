"""The indices of features as vectors, and one row of a sample from those that were looked up."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from tf_byteps.tables.configs import FeatureConfig


@dataclasses.dataclass
class Lookups:
    """What a feature looks up in a batch.

    Attributes:
        feature: its `FeatureConfig`.
        indices: an int64 vector, checked.
        shape: of the indices of a dense input; `None` for ragged and sparse ones.
        static_shape: what is known of it.
        samples: for each index the number of its sample, and how many samples there are, for
            ragged and sparse inputs.
        weights: as many numbers as indices, or `None`.
    """

    feature: FeatureConfig
    indices: tf.Tensor
    shape: tf.Tensor | None
    static_shape: tf.TensorShape | None
    samples: tuple[tf.Tensor, tf.Tensor] | None
    weights: tf.Tensor | None


def of_feature(feature: FeatureConfig, inputs: Any, weights: Any) -> Lookups:
    """The indices of a feature, checked.

    Args:
        feature: its `FeatureConfig`.
        inputs: a tensor of shape `[samples]` or `[samples, indices]`, a `tf.RaggedTensor` whose
            rows are the samples' indices, or a `tf.SparseTensor` of two axes.
        weights: of the same kind and shape as `inputs`, or `None`.

    Raises:
        ValueError: the shapes do not fit.
        tf.errors.InvalidArgumentError: an index is not in the table; when the step runs, if it is
            traced.
    """
    combiner = feature.table.combiner
    if feature.table.vocabulary is not None:
        _check_keys(feature, inputs)
    if weights is not None and type(weights) is not type(inputs):
        weights = tf.convert_to_tensor(weights)
        inputs = inputs if _is_composite(inputs) else tf.convert_to_tensor(inputs)
        if _is_composite(inputs):
            raise _misfit(feature, f"weights are {type(weights).__name__}", inputs)
    if weights is not None and combiner is None:
        raise ValueError(
            f"the feature {feature.name!r} has weights, but its table has combiner=None, which "
            "combines nothing: leave them out, or choose a combiner"
        )
    if _is_composite(inputs):
        if combiner is None:
            raise ValueError(
                f"the input of the feature {feature.name!r} is a {type(inputs).__name__}, and its "
                "table has combiner=None: choose a combiner, or use a dense input"
            )
        values, samples = _of_samples(inputs)
        numbers = None if weights is None else _of_samples(weights)[0]
        return Lookups(feature, _checked(feature, values), None, None, samples, numbers)
    inputs = tf.convert_to_tensor(inputs)
    if combiner is not None and inputs.shape.rank not in (1, 2):
        raise _misfit(feature, "with a combiner it must be [samples] or [samples, indices]", inputs)
    if weights is not None:
        weights = tf.convert_to_tensor(weights)
        if not weights.shape.is_compatible_with(inputs.shape):
            raise _misfit(feature, f"weights have shape {weights.shape}", inputs)
        weights = tf.reshape(weights, [-1])
    flat = _checked(feature, tf.reshape(inputs, [-1]))
    return Lookups(feature, flat, tf.shape(inputs), inputs.shape, None, weights)


def combined(lookups: Lookups, rows: tf.Tensor) -> tf.Tensor:
    """One row for each sample from the rows of its indices, as the table's combiner says.

    Args:
        lookups: of the feature.
        rows: of its indices, in their order: `[indices, width]`.

    Returns:
        A tensor of shape `[samples, width]`; without a combiner of the input's shape and the width.
        The one index of a sample whose input has one axis is weighted, and not combined.
    """
    combiner = lookups.feature.table.combiner
    weights = None if lookups.weights is None else tf.cast(lookups.weights, rows.dtype)
    if lookups.samples is not None:
        weights = tf.ones_like(rows[:, 0]) if weights is None else weights
        weighted = rows * weights[:, tf.newaxis]
        samples, number = lookups.samples

        def total(tensor: tf.Tensor) -> tf.Tensor:
            return tf.math.unsorted_segment_sum(tensor, samples, number)

        return _divided(combiner, total(weighted), weights[:, tf.newaxis], total)
    assert lookups.shape is not None and lookups.static_shape is not None
    shape, known = lookups.shape, lookups.static_shape
    rows = tf.reshape(rows, tf.concat([shape, tf.shape(rows)[1:]], 0))
    rows = tf.ensure_shape(rows, [*known, lookups.feature.table.embedding_dim])
    if weights is not None:
        weights = tf.expand_dims(tf.reshape(weights, shape), -1)
        rows = rows * weights
    if combiner is None or known.rank == 1:
        return rows

    def sum_of(tensor: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tensor, 1)

    if weights is None:
        weights = tf.ones_like(rows[:, :, :1])
    return _divided(combiner, sum_of(rows), weights, sum_of)


def _divided(combiner: str | None, summed: tf.Tensor, weights: tf.Tensor, total: Any) -> tf.Tensor:
    if combiner == "mean":
        return tf.math.divide_no_nan(summed, total(weights))
    if combiner == "sqrtn":
        return tf.math.divide_no_nan(summed, tf.sqrt(total(tf.square(weights))))
    return summed


def _checked(feature: FeatureConfig, indices: tf.Tensor) -> tf.Tensor:
    indices = tf.cast(indices, tf.int64)
    if feature.table.vocabulary is not None:
        return indices
    rows = feature.table.vocabulary_size
    is_in_table = tf.reduce_all((indices >= 0) & (indices < rows))
    message = (
        # No quotes: TensorFlow would put a backslash before each.
        f"the feature {feature.name} has an index that is not in the table "
        f"{feature.table.name}, which has {rows} rows: indices must be from 0 to {rows - 1}; "
        "smallest and largest index:"
    )
    limits = [tf.reduce_min(indices), tf.reduce_max(indices)]
    assertion: Any = tf.debugging.Assert(is_in_table, [message, *limits])
    with tf.control_dependencies([] if assertion is None else [assertion]):
        return tf.identity(indices)


def _check_keys(feature: FeatureConfig, inputs: Any) -> None:
    dtype = inputs.dtype if _is_composite(inputs) else tf.convert_to_tensor(inputs).dtype
    if not dtype.is_integer:
        raise ValueError(
            f"the input of the feature {feature.name!r} has dtype {dtype.name}, and keys of a "
            "DynamicVocabulary are integers: give keras.Input dtype='int64', and hash strings with "
            "tf.strings.to_hash_bucket_fast(strings, 2**62)"
        )


def _of_samples(inputs: Any) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
    if isinstance(inputs, tf.RaggedTensor):
        return inputs.flat_values, (inputs.value_rowids(), inputs.nrows())
    return inputs.values, (inputs.indices[:, 0], tf.gather(inputs.dense_shape, 0))


def _is_composite(inputs: Any) -> bool:
    return isinstance(inputs, (tf.RaggedTensor, tf.SparseTensor))


def _misfit(feature: FeatureConfig, what: str, inputs: Any) -> ValueError:
    return ValueError(
        f"the input of the feature {feature.name!r} has shape {inputs.shape}: {what}; give it and "
        "its weights the same kind and shape"
    )
