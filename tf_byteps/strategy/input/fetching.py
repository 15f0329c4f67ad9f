"""Brings batches to the GPU while it computes the step before.

`tf.data.experimental.prefetch_to_device` does the same, but traces six functions for each dataset,
which TensorFlow never frees: half a megabyte for each `predict`. Here datasets of the same elements
share them.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, cast

import tensorflow as tf

from tf_byteps.private.tensorflow import (
    dataset_ops,
    gen_dataset_ops,
    gen_functional_ops,
    gen_resource_variable_ops,
)

# Batches, besides the one that the step has. TensorFlow lets a batch's copy wait for all that the
# GPU has been given until then, which is the step before. With one the next would begin late.
_AHEAD = 2
_STRING = tf.TensorSpec([], tf.string)


def can_fetch(element_spec: object) -> bool:
    """Whether all of an element can be in a GPU's memory.

    Args:
        element_spec: of a `tf.data.Dataset`.
    """
    return all(
        isinstance(spec, tf.TensorSpec) and spec.dtype not in (tf.string, tf.variant, tf.resource)
        for spec in tf.nest.flatten(element_spec)
    )


def fetched(dataset: tf.data.Dataset, device: str) -> Any:
    """The dataset, with its elements in the memory of `device`. Nothing can be added to it.

    Args:
        dataset: a `tf.data.Dataset` for which `can_fetch` is true.
        device: a string.

    Returns:
        A `tf.data.Dataset`.
    """
    # What lies beneath has been optimized by itself; these stages cannot be.
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return _OnDevice(dataset, device).prefetch(_AHEAD).with_options(options)


class _OnDevice(dataset_ops.UnaryUnchangedStructureDataset):
    """A dataset whose iterator is on a device, and asks one on the host for each element."""

    def __init__(self, dataset: tf.data.Dataset, device: str) -> None:
        structure = dataset._flat_structure
        functions = _functions(
            tuple(structure["output_types"]), tuple(map(_dimensions, structure["output_shapes"]))
        )
        source = gen_dataset_ops.wrap_dataset_variant(dataset._variant_tensor)
        # In the functions it would be on the device, which has no text.
        host = tf.constant("/cpu:0")
        with tf.device(device):
            variant = gen_dataset_ops.generator_dataset(
                [source, host],
                [host],
                [host],
                init_func=functions.begin,
                next_func=functions.next,
                finalize_func=functions.end,
                **structure,
            )
        super().__init__(cast(Any, dataset), variant)


def _dimensions(shape: tf.TensorShape) -> tuple[int | None, ...] | None:
    return None if shape.rank is None else tuple(shape.as_list())


@dataclasses.dataclass(frozen=True)
class _Functions:
    """Of an iterator on a device. They call others on the host, where the source's iterator is;
    their last argument is the host."""

    begin: Any  # the dataset, wrapped -> the name of an iterator
    next: Any  # the name -> the tensors of an element
    end: Any  # the name -> 0


@functools.cache
def _functions(
    types: tuple[tf.DType, ...], shapes: tuple[tuple[int | None, ...] | None, ...]
) -> _Functions:
    structure = {"output_types": types, "output_shapes": shapes}

    def begin(wrapped: tf.Tensor) -> tf.Tensor:
        iterator = gen_dataset_ops.anonymous_iterator(**structure)
        dataset = gen_dataset_ops.unwrap_dataset_variant(wrapped)
        with tf.control_dependencies([gen_dataset_ops.make_iterator(dataset, iterator)]):
            return gen_dataset_ops.iterator_to_string_handle(iterator)

    def next_element(name: tf.Tensor) -> Any:
        iterator = gen_dataset_ops.iterator_from_string_handle_v2(name, **structure)
        return gen_dataset_ops.iterator_get_next(iterator, **structure)

    def end(name: tf.Tensor) -> tf.Tensor:
        iterator = gen_dataset_ops.iterator_from_string_handle_v2(name, **structure)
        destroy = gen_resource_variable_ops.destroy_resource_op(iterator, ignore_lookup_error=True)
        with tf.control_dependencies([destroy]):
            return tf.constant(0, tf.int64)

    with tf.device(None):  # not the caller's: the next dataset may be for another device
        return _Functions(
            _on_host(begin, tf.TensorSpec([], tf.variant), [tf.string]),
            # Without the attribute, integers would be in the host's memory.
            _on_host(next_element, _STRING, list(types), experimental_ints_on_device=True),
            _on_host(end, _STRING, [tf.int64]),
        )


def _on_host(
    function: Callable[[tf.Tensor], Any],
    argument: tf.TensorSpec,
    results: list[tf.DType],
    **attributes: bool,
) -> Any:
    """A traced function for a device, which has the host call another."""
    traced = tf.function(function, autograph=False).get_concrete_function(argument)

    def call(value: tf.Tensor, host: tf.Tensor) -> Any:
        return gen_functional_ops.remote_call(target=host, args=[value], Tout=results, f=traced)

    on_device = tf.function(call, autograph=False, experimental_attributes=attributes)
    return on_device.get_concrete_function(argument, _STRING)
