"""`push_pull` of `tf.IndexedSlices`: only the rows that some worker touched travel."""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_byteps.exchange.compressor import Compressor
from tf_byteps.ops import autograph

# Marks the one row by which each worker is counted. No gradient has this index.
_COUNTING_INDEX = tf.int64.min


@dataclasses.dataclass(frozen=True)
class Form:
    """What `tf.IndexedSlices` are besides their rows.

    Attributes:
        row_shape: an integer tensor.
        static_row_shape: what is known of it when the function is traced.
        index_dtype: a `tf.DType`.
        dense_shape: a tensor, or `None`.
    """

    row_shape: tf.Tensor
    static_row_shape: tuple | tf.TensorShape
    index_dtype: tf.DType
    dense_shape: tf.Tensor | None
    merges: bool = True


def prepare(
    slices: tf.IndexedSlices,
    compression: type[Compressor] | Compressor,
    average: bool,
    merges: bool = True,
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.IndexedSlices]]:
    """What a worker sends so that the rows of all workers are added up, or averaged, in one gather.

    Duplicates are merged, because optimizers that square the rows would see another gradient
    otherwise: the dense one has each row once. Each worker merges its own before it sends them.
    Index and row travel side by side, so that one gather carries both.

    Args:
        slices: a `tf.IndexedSlices` with values of shape `[rows, ...]`; `rows` may differ between
            the workers.
        compression: a `Compressor`, used for the rows.
        average: whether to divide the sums by the number of workers.
        merges: whether rows with one index become one row. If not, all rows stay as they are, in
            rank order: that of a single process.

    Returns:
        A tensor of two axes, to be gathered along axis 0; and a function of what was gathered. It
        returns a `tf.IndexedSlices`; merged, it has each index once, in ascending order.
    """
    form = form_of(slices, merges)
    packed, context = pack(slices, compression, merges)

    def result_of(gathered: tf.Tensor) -> tf.IndexedSlices:
        return unpack(
            gathered, form, average, lambda rows: autograph.decompress(compression, rows, context)
        )

    return packed, result_of


def form_of(slices: tf.IndexedSlices, merges: bool = True) -> Form:
    """What the result of an exchange of `slices` is besides its rows."""
    values = tf.convert_to_tensor(slices.values)
    row_shape = tf.shape(values)[1:]
    return Form(row_shape, values.shape[1:], slices.indices.dtype, slices.dense_shape, merges)


def flat(slices: tf.IndexedSlices) -> tf.IndexedSlices:
    """The same with int64 indices, and with values of two axes."""
    values = tf.convert_to_tensor(slices.values)
    width = values.shape[1:].num_elements()  # static, if it is known
    if width is None:
        width = tf.reduce_prod(tf.shape(values)[1:])
    rows = tf.reshape(values, tf.stack([tf.shape(values)[0], width]))
    return tf.IndexedSlices(rows, tf.cast(slices.indices, tf.int64), slices.dense_shape)


def shaped(slices: tf.IndexedSlices, form: Form) -> tf.IndexedSlices:
    """What `flat` was called with."""
    rows = slices.values
    shape = tf.concat([tf.shape(rows)[:1], tf.cast(form.row_shape, tf.int32)], 0)
    static_shape = tf.TensorShape([None]).concatenate(form.static_row_shape)
    result = tf.ensure_shape(tf.reshape(rows, shape), static_shape)
    return tf.IndexedSlices(result, tf.cast(slices.indices, form.index_dtype), form.dense_shape)


def merged(rows: tf.IndexedSlices) -> tf.IndexedSlices:
    """Rows with one index added up: each index once, in ascending order."""
    indices, values = _merge(rows.indices, rows.values)
    return tf.IndexedSlices(values, indices, rows.dense_shape)


def pack(
    slices: tf.IndexedSlices, compression: type[Compressor] | Compressor, merges: bool = True
) -> tuple[tf.Tensor, Any]:
    """What a worker sends: its indices and rows, side by side.

    Returns:
        A tensor of two axes, and what `compression.decompress` needs.
    """
    rows = flat(slices)
    if merges:
        rows = merged(rows)
    compressed, context = autograph.compress(compression, rows.values)
    # The workers are counted by what they send: a traced function must not hold their number
    # (protocol rule 16).
    indices = tf.concat([[_COUNTING_INDEX], rows.indices], 0)
    compressed = tf.pad(compressed, [[1, 0], [0, 0]])
    words = _index_words(compressed.dtype)
    return tf.concat(
        [tf.reshape(tf.bitcast(indices, compressed.dtype), [-1, words]), compressed], 1
    ), context


def unpack(
    gathered: tf.Tensor,
    form: Form,
    average: bool = False,
    decompress: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> tf.IndexedSlices:
    """The result of all workers' rows.

    Args:
        gathered: what all workers have packed, along axis 0.
        form: a `Form`, the result's.
        average: see `prepare`.
        decompress: a function of the rows, or `None`.

    Returns:
        What `prepare` says.
    """
    words = _index_words(gathered.dtype)
    index_words = gathered[:, :words] if gathered.dtype.size < tf.int64.size else gathered[:, 0]
    all_indices = tf.bitcast(index_words, tf.int64)
    rows = gathered[:, words:]
    if decompress is not None:
        rows = decompress(rows)
    counts = tf.equal(all_indices, _COUNTING_INDEX)
    workers = tf.math.count_nonzero(counts) if average else None
    if form.merges:
        indices, rows = _merge(all_indices, rows, workers)
        indices, rows = indices[1:], rows[1:]  # without the one that counts
    else:
        own = tf.where(tf.logical_not(counts))[:, 0]
        indices, rows = tf.gather(all_indices, own), tf.gather(rows, own)
        rows = rows if workers is None else rows / tf.cast(workers, rows.dtype)
    return shaped(tf.IndexedSlices(rows, indices), form)


def _index_words(dtype: tf.DType) -> int:
    """How many elements of a row's dtype an index takes."""
    return max(1, tf.int64.size // dtype.size)


def _merge(
    indices: tf.Tensor, rows: tf.Tensor, divisor: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """One row for each index, in ascending order of the indices; 16-bit rows are added up in
    float32.

    All workers must get the same bits, so rows of one index are added up in a fixed order. (A GPU
    adds in any order in `tf.math.unsorted_segment_sum`.)
    """
    order = tf.argsort(indices, stable=True)
    indices = tf.gather(indices, order)
    is_first = tf.concat(
        [tf.ones_like(indices[:1], tf.bool), tf.not_equal(indices[1:], indices[:-1])], 0
    )
    first = tf.where(is_first)[:, 0]
    exact = tf.cast(rows, tf.float32) if rows.dtype in (tf.float16, tf.bfloat16) else rows
    sums = tf.sparse.segment_sum(
        exact, order, tf.cumsum(tf.cast(is_first, tf.int32)) - 1, num_segments=tf.size(first)
    )
    if divisor is not None:
        sums /= tf.cast(divisor, sums.dtype)
    return tf.gather(indices, first), tf.cast(sums, rows.dtype)
