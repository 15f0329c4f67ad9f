"""Brings batches to the GPU while it computes the step before."""

from typing import Any

import tensorflow as tf

# Batches, besides the one that the step has. TensorFlow lets a batch's copy wait for all that the
# GPU has been given until then, which is the step before. With one the next would begin late.
_AHEAD = 2


def can_fetch(element_spec: Any) -> bool:
    """Whether all of an element can be in a GPU's memory.

    Args:
        element_spec: of a `tf.data.Dataset`.
    """
    return all(
        isinstance(spec, tf.TensorSpec) and spec.dtype not in (tf.string, tf.variant, tf.resource)
        for spec in tf.nest.flatten(element_spec)
    )


def fetched(dataset: Any, device: Any) -> Any:
    """The dataset, with its elements in the memory of `device`. Nothing can be added to it.

    Args:
        dataset: a `tf.data.Dataset` for which `can_fetch` is true.
        device: a string.

    Returns:
        A `tf.data.Dataset`.
    """
    fetch = tf.data.experimental.prefetch_to_device(device, buffer_size=_AHEAD)
    # What lies beneath has been optimized by itself; these stages cannot be.
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.apply(fetch).with_options(options)
