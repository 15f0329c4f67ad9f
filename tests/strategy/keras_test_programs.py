"""Runs Keras's own tests of tf.distribute with BytePSStrategy in MirroredStrategy's place."""

import contextlib
import importlib
import sys
import tempfile
import types
import unittest
from unittest import mock

import keras
import pytest
import tensorflow as tf
from tensorflow.python.distribute.values import PerReplica
from tensorflow.python.eager import context

import tf_byteps as bps
from tf_byteps.strategy.input.datasets import BytePSDataset

_TemporaryDirectory = tempfile.TemporaryDirectory


class Exchanged(bps.BytePSStrategy):
    """A BytePSStrategy that is made as `MirroredStrategy(devices)` is."""

    def __init__(self, devices=None):
        super().__init__()


class ExchangedAndShown(Exchanged):
    """Shows what `run` returned on all workers, for tests that look at the replicas' values."""

    def run(self, fn, args=(), kwargs=None, options=None):
        result = super().run(fn, args, kwargs, options)
        return _of_all_workers(result) if tf.executing_eagerly() else result


def _of_all_workers(structure):
    """What MirroredStrategy returns: each value together with those of the other replicas."""
    own = [tf.convert_to_tensor(value).numpy() for value in tf.nest.flatten(structure)]
    everyone = bps.allgather_object(own, name="shown")
    shown = [PerReplica([tf.constant(value) for value in values]) for values in zip(*everyone)]
    return tf.nest.pack_sequence_as(structure, shown)


def _shown_elements(self):
    return map(_of_all_workers, iter(self._dataset))


@contextlib.contextmanager
def _one_folder_for_all():
    """Worker 0's temporary folder, as on a file system that all workers see."""
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(_TemporaryDirectory()) if bps.rank() == 0 else None
        yield bps.broadcast_object(own, name="folder")
        bps.push_pull(tf.constant(0.0), name="nobody uses the folder any more")


def _temporary_directory(**arguments):
    """The tests give no arguments; those of tf_byteps, when it saves, are its own."""
    return _TemporaryDirectory(**arguments) if arguments else _one_folder_for_all()


@contextlib.contextmanager
def _exchanged(shown):
    """BytePSStrategy instead of MirroredStrategy.

    TensorFlow's context stays as it is: the two logical processors that the tests ask for are two
    workers here.
    """
    strategy = ExchangedAndShown if shown == "results" else Exchanged
    with contextlib.ExitStack() as stack:
        for owner, name, replacement in (
            (tf.distribute, "MirroredStrategy", strategy),
            (context, "_reset_context", lambda: None),
            (tf.config, "set_logical_device_configuration", lambda *_: None),
            (tempfile, "TemporaryDirectory", _temporary_directory),
        ):
            stack.enter_context(mock.patch.object(owner, name, replacement))
        if shown == "elements":
            stack.enter_context(mock.patch.object(BytePSDataset, "__iter__", _shown_elements))
        yield


def _import(module):
    """Imports a module of Keras's tests, with stand-ins for what it imports for other backends."""
    stand_ins = {name: types.ModuleType(name) for name in ("conftest", "jax", "torch")}
    stand_ins["conftest"].skip_if_backend = lambda backend, reason: pytest.mark.skipif(
        keras.backend.backend() == backend, reason=reason
    )
    stand_ins = {name: stand_in for name, stand_in in stand_ins.items() if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        return importlib.import_module(module)
    finally:
        for name in stand_ins:
            del sys.modules[name]


def run(module, test, shown=""):
    """Runs `Class.method` of a module of Keras's tests.

    Args:
        module: a module in `keras.src`.
        test: the test in it.
        shown: what is shown of all workers: "results" of `Strategy.run`, "elements" of datasets, or
            nothing.

    Returns:
        "passed", "skipped: why", or what went wrong.
    """
    bps.init()
    keras.utils.set_random_seed(1)  # what tests draw for themselves must be the same everywhere
    result = unittest.TestResult()
    with _exchanged(shown):
        suite = unittest.defaultTestLoader.loadTestsFromName(test, _import(f"keras.src.{module}"))
        suite.run(result)
    assert result.testsRun == 1, result
    if result.skipped:
        return f"skipped: {result.skipped[0][1]}"
    problems = [trace for _, trace in result.failures + result.errors]
    return problems[0] if problems else "passed"
