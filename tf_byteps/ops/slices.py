"""`push_pull` of `tf.IndexedSlices`: only the rows that some worker touched travel."""

import tensorflow as tf

# Marks the one row by which each worker is counted. No gradient has this index.
_COUNTING_INDEX = tf.int64.min


def reduce_rows(slices, gather, average, compression):
    """Adds up, or averages, the rows of all workers in one exchange.

    Duplicates are merged, because optimizers that square the rows would see another gradient
    otherwise. Each worker merges its own before it sends them. Index and row travel side by side,
    so that one gather carries both.

    Args:
        slices: a `tf.IndexedSlices` with values of shape `[rows, ...]`; `rows` may differ between
            the workers.
        gather: a function that concatenates the workers' tensors along axis 0.
        average: whether to divide the sums by the number of workers.
        compression: a `Compressor`, used for the rows.

    Returns:
        A `tf.IndexedSlices` with each index once, in ascending order.
    """
    values = tf.convert_to_tensor(slices.values)
    row_shape = tf.shape(values)[1:]
    rows = tf.reshape(values, tf.stack([tf.shape(values)[0], tf.reduce_prod(row_shape)]))
    indices, rows = _merge(tf.cast(slices.indices, tf.int64), rows)
    compressed, context = compression.compress(rows)
    gathered_indices, gathered, workers = _exchange(indices, compressed, gather)
    divisor = tf.cast(workers, tf.float64) if average else None
    indices, rows = _merge(gathered_indices, compression.decompress(gathered, context), divisor)
    result = tf.reshape(rows, tf.concat([tf.shape(rows)[:1], row_shape], 0))
    result = tf.ensure_shape(result, [None, *values.shape[1:]])
    return tf.IndexedSlices(result, tf.cast(indices, slices.indices.dtype), slices.dense_shape)


def _merge(indices, rows, divisor=None):
    """One row for each index, in ascending order of the indices; 16-bit rows are added up in
    float32."""
    unique, positions = tf.unique(indices)
    order = tf.argsort(unique)
    positions = tf.gather(tf.math.invert_permutation(order), positions)
    exact = tf.cast(rows, tf.float32) if rows.dtype in (tf.float16, tf.bfloat16) else rows
    sums = tf.math.unsorted_segment_sum(exact, positions, tf.size(unique))
    if divisor is not None:
        sums /= tf.cast(divisor, sums.dtype)
    return tf.gather(unique, order), tf.cast(sums, rows.dtype)


def _exchange(indices, rows, gather):
    """All workers' indices and rows, and the number of workers.

    The workers are counted by what they send: a traced function must not hold their number
    (protocol rule 16).
    """
    indices = tf.concat([[_COUNTING_INDEX], indices], 0)
    rows = tf.pad(rows, [[1, 0], [0, 0]])
    words = max(1, tf.int64.size // rows.dtype.size)
    index_words = tf.reshape(tf.bitcast(indices, rows.dtype), [-1, words])
    gathered = gather(tf.concat([index_words, rows], 1))
    index_words = gathered[:, :words] if rows.dtype.size < tf.int64.size else gathered[:, 0]
    all_indices = tf.bitcast(index_words, tf.int64)
    is_row = tf.not_equal(all_indices, _COUNTING_INDEX)
    workers = tf.size(is_row) - tf.math.count_nonzero(is_row, dtype=tf.int32)
    return (
        tf.boolean_mask(all_indices, is_row),
        tf.boolean_mask(gathered[:, words:], is_row),
        workers,
    )
