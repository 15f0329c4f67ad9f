"""Cuts a worker's piece out of each batch, into memory of its own."""

from typing import Any

import tensorflow as tf

from tf_byteps.ops.library import kernels

# Types whose values lie elsewhere: copying their bytes would not copy them.
_WITHOUT_BYTES = (tf.string, tf.variant, tf.resource)


def bounds(rows: tf.Tensor | int, rank: tf.Tensor | int, size: tf.Tensor | int) -> Any:
    """The half-open range of rows that a worker gets of a global batch.

    Args:
        rows: rows of the global batch, an integer or an integer scalar tensor.
        rank: the worker.
        size: the number of workers.

    Returns:
        The pair `begin, end`; both are `rows` if nothing is left for the worker.
    """
    piece = (rows + size - 1) // size
    if isinstance(rows, int):
        return min(rank * piece, rows), min((rank + 1) * piece, rows)
    return tf.minimum(rank * piece, rows), tf.minimum((rank + 1) * piece, rows)


def split(dataset: tf.data.Dataset, rank: tf.Tensor | int, size: tf.Tensor | int) -> Any:
    """Cuts one worker's piece out of every element.

    Args:
        dataset: a `tf.data.Dataset` whose elements have a common first axis, the batch.
        rank: the worker.
        size: the number of workers.

    Returns:
        A `tf.data.Dataset` with as many elements.
    """
    check_batches(dataset.element_spec)

    def cut(*element: object) -> Any:
        return piece(packed(dataset, element), rank, size)

    return dataset.map(cut)


def check_batches(spec: Any) -> None:
    """Refuses a dataset without a batch axis.

    Args:
        spec: of its elements.

    Raises:
        ValueError: one of its tensors is a scalar.
    """
    for component in tf.nest.flatten(spec):
        if isinstance(component, tf.TensorSpec) and component.shape.rank == 0:
            raise ValueError(
                "a distributed dataset needs batches to split, but an element of this one is "
                f"{spec}: call dataset.batch(global_batch_size) first"
            )


def piece(element: Any, rank: tf.Tensor | int, size: tf.Tensor | int) -> Any:
    """One worker's rows of an element. See `split`."""
    return tf.nest.map_structure(lambda tensor: _cut(tensor, rank, size), element)


def copied(dataset: tf.data.Dataset) -> Any:
    """The same batches, where a GPU can read them by itself. See `copied_rows`.

    Args:
        dataset: a `tf.data.Dataset`. What is no batch, or text, stays as it is.

    Returns:
        A `tf.data.Dataset` with as many elements.
    """

    def copy(*element: object) -> Any:
        element = packed(dataset, element)
        return tf.nest.map_structure(
            lambda tensor: _cut(tensor, 0, 1) if tensor.shape.rank else tensor, element
        )

    return dataset.map(copy)


def _cut(tensor: tf.Tensor, rank: tf.Tensor | int, size: tf.Tensor | int) -> Any:
    if isinstance(tensor, tf.experimental.Optional):
        return tensor
    if isinstance(tensor, tf.SparseTensor):
        shape = copied_rows(tensor.dense_shape, 0, tf.size(tensor.dense_shape))
        begin, end = bounds(shape[0], rank, size)
        rest = shape[1:]
        start = tf.concat([[begin], tf.zeros_like(rest)], 0)
        return tf.sparse.slice(tensor, start, tf.concat([[end - begin], rest], 0))
    if isinstance(tensor, tf.RaggedTensor):
        return copied_rows(tensor, *bounds(tensor.nrows(), rank, size))
    rows = tensor.shape[0] if tensor.shape.rank else None
    return copied_rows(tensor, *bounds(tf.shape(tensor)[0] if rows is None else rows, rank, size))


def copied_rows(tensor: tf.Tensor, begin: tf.Tensor | int, end: tf.Tensor | int) -> Any:
    """Some rows of a tensor, in memory of their own.

    A batch that a generator or a `PyDataset` gives is the program's own array: TensorFlow takes its
    memory as it is, and writes no result there. But it forgets that for `tensor[begin:end]`, which
    is a view of the same memory: the next elementwise operation would overwrite the array, or the
    file that it was mapped from. Where there is a GPU, the rows lie in page-locked memory: from
    other memory CUDA copies more slowly, and launches no kernel of this process meanwhile.

    Args:
        tensor: a `tf.Tensor`, or a `tf.RaggedTensor`.
        begin, end: the half-open range of rows, integers or integer scalar tensors.
    """
    if not isinstance(tensor, tf.RaggedTensor):
        if tensor.dtype in _WITHOUT_BYTES:
            return tf.gather(tensor, tf.range(begin, end))
        begin, end = (tf.cast(bound, tf.int64) for bound in (begin, end))
        return kernels().byte_ps_copy_rows(tensor, begin, end)
    ragged: Any = tf.RaggedTensor
    length = tensor.uniform_row_length
    if length is not None:
        begin, end = (tf.cast(bound, length.dtype) for bound in (begin, end))
        values = copied_rows(tensor.values, begin * length, end * length)
        return ragged.from_uniform_row_length(values, length, nrows=end - begin)
    splits = copied_rows(tensor.row_splits, begin, end + 1)
    values = copied_rows(tensor.values, splits[0], splits[-1])
    return ragged.from_row_splits(values, splits - splits[0], validate=False)


def packed(dataset: tf.data.Dataset, element: tuple[Any, ...]) -> Any:
    """An element of a dataset, from the arguments that a function of `map` gets for it."""
    return element if isinstance(dataset.element_spec, tuple) else element[0]
