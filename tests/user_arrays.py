"""Watches the arrays of a program: nobody else may write to them.

TensorFlow takes the memory of what a Python function returns as it is, if it begins at a multiple
of 64 bytes. That is how batches of generators and `PyDataset`s come in.
"""

import hashlib

import numpy as np
import tensorflow as tf

_ALIGNMENT = 64


def aligned(array):
    """A copy of an array, in memory that TensorFlow takes as it is."""
    array = np.asarray(array)
    memory = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    copy = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def fingerprint(array):
    """Of an array's bytes; of its values, if they are Python's objects."""
    array = np.ascontiguousarray(array)
    content = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
    return hashlib.sha256(content).hexdigest()


class Watch:
    """Arrays as they were when they were given away."""

    def __init__(self):
        self._arrays = []

    def add(self, name, *structures):
        """Notes the arrays in structures of lists, tuples and dictionaries."""
        arrays = [each for each in tf.nest.flatten(structures) if isinstance(each, np.ndarray)]
        for index, array in enumerate(arrays):
            self._arrays.append((f"array {index} of {name}", array, fingerprint(array)))

    def check(self):
        """Fails with the names of those that are not as they were."""
        changed = [
            f"{name}, {array.dtype} {array.shape}"
            for name, array, before in self._arrays
            if fingerprint(array) != before
        ]
        assert not changed, f"the program's arrays were written to: {changed}"
