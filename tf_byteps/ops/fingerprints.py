"""Numbers that tell whether tensors of the workers are the same, without sending the tensors."""

import numpy as np
import tensorflow as tf

from tf_byteps.ops import Max, push_pull


def fingerprints(tensors):
    """A 64-bit number for each tensor's bits. Other dtypes or values give other numbers.

    Args:
        tensors: a list of `tf.Tensor` or `tf.Variable` of any shape and any dtype that holds data.

    Returns:
        A list of integers.
    """
    with tf.init_scope(), tf.device("CPU"):
        return [int(_fingerprint(tf.convert_to_tensor(tensor))) for tensor in tensors]


def _fingerprint(tensor):
    return tf.bitcast(tf.fingerprint(tf.reshape(tensor, [1, -1])), tf.int64)[0]


def differing(name, numbers):
    """Which of the workers' numbers are not the same on all of them. A collective.

    Its size does not grow with the number of workers.

    Args:
        name: the exchange's name, equal on all workers.
        numbers: a list of 64-bit integers, of the same length on all workers.

    Returns:
        A NumPy array of booleans.
    """
    numbers = np.asarray(numbers, np.int64)
    both = np.concatenate([numbers, ~numbers])  # the largest ~number is that of the smallest
    with tf.init_scope():
        largest = push_pull(tf.constant(both), op=Max, name=name).numpy()
    return largest[: len(numbers)] != ~largest[len(numbers) :]
