"""Watches the arrays that a program gives Keras and TensorFlow: nobody may write to them.

TensorFlow takes the memory of what a Python function returns as it is, if it begins at a multiple
of 64 bytes. That is how batches of generators and `PyDataset`s come in. Whether an array begins
there is chance, so that here each of them does.
"""

import contextlib
import hashlib
import itertools
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from keras.src.trainers import data_adapters
from tensorflow.python.ops import script_ops

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


@contextlib.contextmanager
def unchanged():
    """Fails if what the program within gives away is written to: arguments of `fit`, `evaluate`,
    `predict` and those of one batch, tensors of a `tf.data.Dataset`, and every batch that a
    generator, a `PyDataset` or a function in NumPy returns. It yields the `Watch`.
    """
    watch, numbers = Watch(), itertools.count()
    call_python, get_adapter = script_ops.FuncRegistry.__call__, data_adapters.get_data_adapter

    def returned(registry, token, device, args):
        results = call_python(registry, token, device, args)
        is_list = isinstance(results, list)
        copies = [_given(each) for each in (results if is_list else [results])]
        watch.add(f"result {next(numbers)} of Python", copies)
        return copies if is_list else copies[0]

    def adapter(x, y=None, sample_weight=None, **options):
        watch.add("the input", x, y, sample_weight)
        return get_adapter(x=x, y=y, sample_weight=sample_weight, **options)

    with contextlib.ExitStack() as changes:
        changes.enter_context(mock.patch.object(script_ops.FuncRegistry, "__call__", returned))
        changes.enter_context(mock.patch.object(data_adapters, "get_data_adapter", adapter))
        for name in ("train_on_batch", "test_on_batch", "predict_on_batch"):
            changes.enter_context(mock.patch.object(keras.Model, name, _noting(watch, name)))
        for name in ("from_tensors", "from_tensor_slices"):
            original = getattr(tf.data.Dataset, name)
            changes.enter_context(
                mock.patch.object(
                    tf.data.Dataset, name, staticmethod(_noting_first(watch, name, original))
                )
            )
        yield watch
    watch.check()


def _given(result):
    is_memory = isinstance(result, np.ndarray) and result.dtype.kind in "biufc" and result.size
    return aligned(result) if is_memory else result


def _noting(watch, name):
    def call(self, *args, **kwargs):
        watch.add(name, args, kwargs)
        return getattr(super(keras.Model, self), name)(*args, **kwargs)

    return call


def _noting_first(watch, name, original):
    def call(tensors, *args, **kwargs):
        watch.add(name, tensors)
        return original(tensors, *args, **kwargs)

    return call
