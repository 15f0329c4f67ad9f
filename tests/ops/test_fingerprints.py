"""Numbers that tell whether tensors are the same."""

import numpy as np
import tensorflow as tf

from tf_byteps.ops.fingerprints import fingerprints

_VALUES = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.arange(6, dtype=np.float64).reshape(2, 3),
    np.arange(7, dtype=np.int32),
    np.zeros([0], np.float32),
    np.array(True),
    np.array([b"ab", b"c"]),
]


def test_traces_are_no_reason_for_a_warning(caplog):
    """TensorFlow warns of functions that are traced again and again: twice in a process."""
    logger = tf.get_logger()  # which may hand nothing on
    logger.addHandler(caplog.handler)
    try:
        for dtype in (tf.float32, tf.float64, tf.int32, tf.int64):
            for length in range(1, 5):
                fingerprints([tf.ones([length + 1, 2], dtype)] * length)
    finally:
        logger.removeHandler(caplog.handler)
    assert "retracing" not in caplog.text


def test_a_number_follows_from_bits_and_dtype():
    numbers = fingerprints(map(tf.constant, _VALUES))
    assert len(set(numbers)) == len(_VALUES)
    assert [fingerprints([tf.constant(value)]) for value in _VALUES] == [[n] for n in numbers]
    assert fingerprints([tf.Variable(_VALUES[0])]) == numbers[:1]
    changed = _VALUES[0] + np.float32([[0, 0, 0], [0, 0, 1e-6]])
    assert fingerprints([tf.constant(changed)]) != numbers[:1]
    assert fingerprints([]) == []
