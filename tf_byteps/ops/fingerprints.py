"""Numbers that tell whether tensors of the workers are the same, without sending the tensors."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf


def fingerprints(tensors: Iterable[Any]) -> list[int]:
    """A 64-bit number for each tensor's bits. Other dtypes or values give other numbers.

    Args:
        tensors: a list of `tf.Tensor` or `tf.Variable` of any shape and any dtype that holds data.

    Returns:
        A list of integers.
    """
    with tf.init_scope():
        listed = [tf.convert_to_tensor(tensor) for tensor in tensors]
        return _fingerprints(listed).numpy().tolist() if listed else []


# One function for all: a model has hundreds of variables, and an operation called alone takes a
# tenth of a millisecond, or on a GPU's tensor waits for it. It is traced for each number of tensors
# and their dtypes, not for their shapes: a process may see many models and datasets.
@tf.function(autograph=False, reduce_retracing=True)
def _fingerprints(tensors: list[tf.Tensor]) -> tf.Tensor:
    with tf.device("CPU"):
        rows = [tf.fingerprint(tf.reshape(tensor, [1, -1])) for tensor in tensors]
        return tf.bitcast(tf.concat(rows, 0), tf.int64)


# TensorFlow would tell users to trace less often.
_fingerprints._omit_frequent_tracing_warning = True  # pyright: ignore[reportFunctionMemberAccess]
