"""Gradients of rows, to the workers that have the rows.

A worker adds up its gradients for one row, and sends them to the worker that has it, which adds up
those of all workers: with u different rows of R bytes about `u * (4 + R)` bytes sent and received,
less what is its own, in one exchange for all tables of one width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.ops.scattering import alltoall
from tf_byteps.ops.sparse import slices
from tf_byteps.tables import layout as layouts
from tf_byteps.tables.layout import Layout, ServerLayout
from tf_byteps.tables.lookup import by_owner, number_dtype, with_numbers, without_numbers


def reduce(gradient: Any, layout: Layout, name: str, average: bool, factor: float = 1.0) -> Any:
    """The gradient of this worker's rows of tables, from all workers. A collective.

    Args:
        gradient: what `lookup.look_up` gives: a `tf.IndexedSlices` of the rows of all tables.
        layout: which worker has which rows.
        name: of the exchange.
        average: whether the sum of the workers' gradients is divided by their number.
        factor: what the result is multiplied by.

    Returns:
        A `tf.IndexedSlices` of this worker's rows, each once, in ascending order. If the rows are
        on the servers: this worker's gradient, which the servers add up with the others'.

    Raises:
        NotImplementedError: the gradient is dense, as accumulated ones are.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        raise NotImplementedError(
            f"the gradient of the rows of {_names(layout)} is dense: with DistributedEmbedding and "
            "several workers train without gradient_accumulation_steps, sparse_as_dense and what "
            "else makes gradients of rows dense"
        )
    own = slices.merged(gradient)
    if isinstance(layout, ServerLayout):
        factor = factor / runtime.size() if average else factor  # which is traced in each epoch
        values = own.values * tf.constant(factor, own.values.dtype)
        return tf.IndexedSlices(values, tf.cast(own.indices, tf.int64), own.dense_shape)
    rows, counts, order = by_owner(layout, tf.cast(own.indices, tf.int64))
    dtype = number_dtype(layout, own.values.dtype)
    packed = with_numbers(tf.cast(rows, dtype), tf.gather(own.values, order))
    received, _ = alltoall(packed, counts, name=name)
    received = tf.ensure_shape(received, [None, *packed.shape[1:]])
    rows, values = without_numbers(received, dtype)
    rows = tf.cast(rows, tf.int64)
    summed = slices.merged(tf.IndexedSlices(values, layout.places(rows)))
    values = summed.values
    if average:
        values /= tf.cast(layout.workers, values.dtype)
    if factor != 1:
        values *= tf.constant(factor, values.dtype)
    shape = tf.constant(
        [layout.rows_of_worker, *cast("list[int]", values.shape[1:].as_list())], tf.int64
    )
    return tf.IndexedSlices(values, summed.indices, shape)


def finite(gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """The gradients that an optimizer updates with, when those of spread rows have been checked.

    Args:
        gradients: reduced ones, and `None`.
        variables: what they are gradients of.

    Returns:
        The gradients. A step fails before it updates those rows with something else than numbers.
    """
    return [
        gradient
        if layout is None or gradient is None or isinstance(layout, ServerLayout)  # servers check
        else _finite(gradient, layout)
        for gradient, layout in zip(gradients, map(layouts.of, variables), strict=True)
    ]


def _finite(gradient: tf.IndexedSlices, layout: Layout) -> tf.IndexedSlices:
    is_finite = tf.reduce_all(tf.math.is_finite(gradient.values), 1)
    bad = tf.boolean_mask(gradient.indices, tf.logical_not(is_finite))
    message = (
        f"rows of {_names(layout)} have gradients that are NaN or infinite, and are not updated: "
        "look for NaN in the inputs and targets of this step, or train with a lower learning rate; "
        "numbers of the first such rows, counted through these tables in this order:"
    ).replace("'", "")  # TensorFlow would put a backslash before each
    rows = bad * layout.workers + layout.rank
    assertion: Any = tf.debugging.Assert(tf.reduce_all(is_finite), [message, rows])
    with tf.control_dependencies([] if assertion is None else [assertion]):
        values = tf.identity(gradient.values)
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)


def refuse(tables: Sequence[Layout | None], **settings: Any) -> None:
    """Raises NotImplementedError if a setting does not go with tables that are spread.

    Args:
        tables: layouts of the variables that are trained.
        **settings: names and values of what does not.
    """
    found = [layout for layout in tables if layout is not None]
    for setting, value in settings.items():
        if found and value:
            raise NotImplementedError(
                f"{setting}={value!r} does not work with DistributedEmbedding and several workers "
                f"({_names(found[0])}): leave it out, or use keras.layers.Embedding"
            )


def _names(layout: Layout) -> str:
    names = [name for name, _ in layout.tables]
    listed = ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")
    return f"the table{'s' if len(names) > 1 else ''} {listed}"
