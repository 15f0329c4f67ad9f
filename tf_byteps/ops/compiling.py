"""What is different in functions that XLA compiles."""

import tensorflow as tf

from tf_byteps.private.tensorflow import control_flow_util

# A table whose gradient would take more is not made dense unasked.
_MOST_DENSE_BYTES = 2**30


def is_compiled() -> bool:
    """Whether what is traced now is for XLA.

    A function that was traced before, and is now called by a compiled one, is not traced again.
    """
    if tf.executing_eagerly():
        return False
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def dense(slices: tf.IndexedSlices) -> tf.Tensor:
    """The dense tensor for `tf.IndexedSlices`, whose rows XLA cannot exchange: their number is
    known only when they come.

    Args:
        slices: a `tf.IndexedSlices`.

    Returns:
        A `tf.Tensor`.

    Raises:
        ValueError: the tensor would be very large.
    """
    shape = tf.get_static_value(slices.dense_shape)
    size = slices.values.dtype.size
    for length in () if shape is None else shape:
        size *= int(length)
    if shape is None or size > _MOST_DENSE_BYTES:
        what = "unknown shape" if shape is None else f"shape {shape.tolist()}"
        raise ValueError(
            f"push_pull of tf.IndexedSlices for a table of {what} within a function that XLA "
            "compiles: XLA exchanges whole tables only; compile with jit_compile=False, or make "
            "it dense with sparse_as_dense=True"
        )
    return tf.convert_to_tensor(slices)
