"""Input from arrays for `Model.fit` and others: only this worker's rows are ever gathered."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from keras import tree

from tf_byteps import runtime
from tf_byteps.exchange.content import sample
from tf_byteps.private.keras import ArrayDataAdapter, array_slicing
from tf_byteps.strategy.input import content, pieces, sharding, shuffle
from tf_byteps.strategy.input.datasets import BytePSDataset
from tf_byteps.types import TensorLike


def share(adapter: ArrayDataAdapter) -> Any:
    """This worker's share of Keras's array input. A collective: all workers call it.

    The order of rows is chosen for the whole epoch and is the same on all workers; each takes its
    piece of every batch of indices and then gathers those rows only.

    Args:
        adapter: Keras's `ArrayDataAdapter`.

    Returns:
        A `BytePSDataset`.

    Raises:
        ValueError: the workers' arrays differ in length or content, or their batch sizes or seeds
            differ.
    """
    rows, batch_size, shuffled = adapter._num_samples, adapter._batch_size, adapter._shuffle
    if shuffled == "batch":
        indices = _shuffled_within_batches(rows, batch_size)
    else:
        order = shuffle.permutations(rows) if shuffled else shuffle.in_order(rows)
        indices = _pieces(order, rows, batch_size)
    inputs = tree.lists_to_tuples(
        array_slicing.convert_to_sliceable(adapter._inputs, target_backend="tensorflow")
    )
    facts = {"rows": rows, "batch size": batch_size, "shuffle": str(shuffled)}
    sharding.check_same(facts, lambda: _content(inputs, rows))
    arrays = tf.data.Dataset.from_tensors(inputs).repeat()
    dataset = tf.data.Dataset.zip(indices, arrays).map(
        _take, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(-(-rows // batch_size)))
    options = tf.data.Options()
    # They would serialize the graph, and with it the arrays.
    options.experimental_optimization.apply_default_optimizations = False
    return BytePSDataset(dataset.with_options(options).prefetch(tf.data.AUTOTUNE))


def _pieces(order: tf.data.Dataset, rows: int, batch_size: int) -> Any:
    """This worker's piece of each batch of an epoch's order of rows, the dataset's one element."""

    def of_epoch(order: tf.Tensor) -> Any:
        def piece(step: tf.Tensor) -> Any:
            batch = step * batch_size
            length = tf.minimum(rows - batch, batch_size)
            begin, end = pieces.bounds(length, runtime.rank(), runtime.size())
            return order[batch + begin : batch + end]

        return tf.data.Dataset.range(-(-rows // batch_size)).map(piece)

    return order.flat_map(of_epoch)


def _shuffled_within_batches(rows: int, batch_size: int) -> Any:
    """Keras's `shuffle="batch"`: batches in order, each one's rows shuffled."""

    def piece(batch: tf.Tensor) -> Any:
        begin, end = pieces.bounds(tf.shape(batch)[0], runtime.rank(), runtime.size())
        return batch[begin:end]

    return shuffle.shuffled(tf.data.Dataset.range(rows).batch(batch_size)).map(piece)


def _content(inputs: object, rows: int) -> Any:
    taken = tf.nest.flatten(_take(sample(rows), inputs), expand_composites=True)
    return content.of_tensors([tensor for tensor in taken if tensor is not None])


def _take(indices: TensorLike, arrays: object) -> Any:
    def take(array: TensorLike) -> Any:
        if isinstance(array, np.ndarray):
            return tf.constant(array[indices])  # without making a tensor of all of it
        if isinstance(array, array_slicing.TensorflowSparseWrapper):
            return array_slicing.slice_tensorflow_sparse_wrapper(array, indices)
        if isinstance(array, (list, tuple, dict)):
            return None  # go into it
        return tf.gather(array, indices) if tf.is_tensor(array) else array

    return tree.traverse(take, arrays)
