"""Datasets of which no worker knows how long they are: all go on until the last one has ended.

The workers ask each other before every element, by one small exchange. Where all should have the
same batches, it says as well what they have: Python may have drawn other rows, or another order, on
one of them.
"""

from typing import Any, cast

import tensorflow as tf

from tf_byteps.ops import Max, push_pull
from tf_byteps.strategy.input import lengths, pieces

_VALUES = 1024  # of each tensor, that are looked at
# Computed on each host, floating-point numbers may differ in their last bits.
_TOLERANCE = 1e-5
_TOLERANCE_OF_HALVES = 1e-2
_TOLERANCE_OF_INTEGERS = 1e-12
_NOTHING = -1e300  # below whatever another worker says


def until_all_end(dataset: tf.data.Dataset, name: str) -> Any:
    """Continues with empty batches until every worker's dataset has ended.

    Args:
        dataset: this worker's own batches.
        name: of the exchanges.

    Returns:
        A `tf.data.Dataset`.
    """

    def unseen(*element: object) -> Any:
        return pieces.packed(dataset, element), tf.zeros([0], tf.float64)

    return _together(dataset.map(unseen), dataset.element_spec, name, "")


def pieces_of_same(dataset: tf.data.Dataset, rank: int, size: int, name: str, advice: str) -> Any:
    """This worker's piece of each batch, until every worker's dataset has ended.

    Args:
        dataset: the global batches, which should be the same on all workers.
        rank: this worker.
        size: the number of workers.
        name: of the exchanges.
        advice: what to do about data that differ, a part of the error.

    Returns:
        A `tf.data.Dataset`. On all workers it ends with a `tf.errors.InvalidArgumentError` at the
        first batch that is not the same on all of them.
    """
    pieces.check_batches(dataset.element_spec)

    def cut(*element: object) -> Any:
        whole = pieces.packed(dataset, element)
        return pieces.piece(whole, rank, size), _seen_of(whole)

    own = dataset.map(cut)
    spec, _ = cast(Any, own.element_spec)
    return _together(own.prefetch(tf.data.AUTOTUNE), spec, name, advice)


def _together(own: tf.data.Dataset, spec: Any, name: str, advice: str) -> Any:
    """Pairs of an element and what is seen of it become elements.

    What asks is the last stage and must not run ahead: a training that stops early must leave all
    workers at the same count.
    """
    _, of_seen = cast(Any, own.element_spec)
    numbers = of_seen.shape[0]
    more = own.map(_as_one_more)
    nothing = tf.constant([0.0] + [_NOTHING] * numbers, tf.float64)
    empty = tf.nest.map_structure(lengths.empty, spec)
    tail = tf.data.Dataset.from_tensors((nothing, empty)).repeat()

    def ask(mine: tf.Tensor, element: object) -> Any:
        everyone = push_pull(mine, op=Max, name=name)
        highest, negated, tolerance = tf.split(everyone[1:], 3)
        alike = tf.reduce_all(highest + negated <= tolerance)
        sentence = f"the workers' data differ: a batch is not the same on all of them. {advice}"
        with tf.control_dependencies([tf.debugging.Assert(alike, [sentence])]):
            return everyone[0] > 0, element

    steps = more.concatenate(tail).map(ask, num_parallel_calls=None)
    steps = steps.take_while(cast(Any, _has_one))
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    options.autotune.enabled = False
    return steps.map(_element).with_options(options)


def _as_one_more(element: object, seen: tf.Tensor) -> Any:
    return tf.concat([[1.0], seen], 0), element


def _has_one(has_one: tf.Tensor, element: object) -> Any:
    return has_one


def _element(has_one: tf.Tensor, element: object) -> Any:
    return element


def _seen_of(batch: Any) -> Any:
    """A number of each tensor, the same negated, and by how much the first may differ.

    Returns:
        A tensor of float64 of shape `[3 * tensors]`.
    """
    tensors = tf.nest.flatten(batch, expand_composites=True)
    seen = [_number(each) for each in tensors if each.dtype not in (tf.variant, tf.resource)]
    numbers, tolerances = ([each[part] for each in seen] for part in (0, 1))
    return tf.stack([*numbers, *(-each for each in numbers), *tolerances])


def _number(tensor: tf.Tensor) -> tuple[Any, Any]:
    """A number that depends on many values of a tensor and on their order, and how exact it is."""
    tolerance = _TOLERANCE_OF_INTEGERS
    if tensor.dtype == tf.string:
        tensor = tf.strings.to_hash_bucket_fast(tensor, 2**31)
    elif tensor.dtype.is_complex:
        tensor = tf.math.real(tensor) + tf.math.imag(tensor)
    if tensor.dtype.is_floating:
        tolerance = _TOLERANCE if tensor.dtype.size > 2 else _TOLERANCE_OF_HALVES
    values = tf.reshape(tensor, [-1])
    # Odd, so that they are not all of one column.
    step = tf.bitwise.bitwise_or(tf.size(values) // _VALUES, 1)
    values = tf.cast(values[::step], tf.float64)
    values = tf.where(tf.math.is_finite(values), values, tf.zeros_like(values))
    number = tf.reduce_sum(values * tf.cos(tf.cast(tf.range(tf.size(values)), tf.float64)))
    return number, tolerance * tf.reduce_sum(tf.abs(values))
