"""Runs trainings one after the other, in the single process or in each worker of a job."""

import pathlib
import time
import traceback
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common import dtypes

import tf_byteps as bps
from tests import user_arrays
from tf_byteps.errors import ExchangeError


def run(trainings, is_single, folder):
    """Called in each process. Starting one costs seconds, so each runs many trainings. Nobody may
    write to the arrays that they give away.

    Args:
        trainings: {name: a function of a folder, the same for all processes of a job}. It returns
            what JSON can hold.
        is_single: whether this is the single process, where nothing is distributed.
        folder: a path for the trainings' folders.

    Returns:
        {name: what the function returned, or {"error": a traceback}}. After a training in which
        workers got stuck there are no more.
    """
    if not is_single:
        bps.init()
    results = {}
    for name, train in trainings.items():
        begin = time.monotonic()
        keras.backend.clear_session()
        path = pathlib.Path(folder) / name
        path.mkdir(parents=True, exist_ok=True)
        try:
            with user_arrays.unchanged():
                results[name] = train(path)
        except Exception:
            results[name] = {"error": traceback.format_exc()}
            print(results[name]["error"], flush=True)
        print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
        if not is_single and not _all_are_here(name, results[name]):
            break
    return results


def float64_where_asked_for():
    """A context in which Keras computes in float64 what is in float64.

    Except on TensorFlow it takes float32, as in `keras.ops.mean`: rounding would hide faults, or be
    taken for some.
    """
    return mock.patch.dict(dtypes.BIT64_TO_BIT32_DTYPE, float64="float64")


def _all_are_here(name, result):
    """Waits for the other workers. False if they are stuck: then nothing after this can run."""
    try:
        bps.allgather_object(None, name=f"end of {name}")
        return True
    except (tf.errors.OpError, ExchangeError):
        result["error"] = f"{result.get('error', '')}\n{traceback.format_exc()}"
        return False


def checked(name, expected, workers):
    """What one process and the workers showed, which is the same on all workers.

    Args:
        name: of a training.
        expected: what `run` returned in the single process.
        workers: what it returned in each worker.

    Raises:
        AssertionError: it failed somewhere, or workers ended differently.

    Returns:
        Two of what the training returned: the single process's and the workers'.
    """
    assert "error" not in expected[name], f"single process:\n{expected[name]['error']}"
    shown = [
        worker.get(name, {"error": "not run: the workers were stuck before"}) for worker in workers
    ]
    for rank, each in enumerate(shown):
        assert "error" not in each, f"worker {rank}:\n{each['error']}"
    for rank, each in enumerate(shown):
        unlike = [key for key in shown[0] if each.get(key) != shown[0][key]]
        assert not unlike, f"worker {rank} shows something else than worker 0: {unlike}"
    assert shown[0].keys() == expected[name].keys()
    return expected[name], shown[0]


def difference(ours, theirs):
    """The largest, relative or absolute, whichever is smaller; infinite where one is not finite."""
    ours, theirs = np.asarray(ours, "float64"), np.asarray(theirs, "float64")
    if ours.shape != theirs.shape or not (np.isfinite(ours) & np.isfinite(theirs)).all():
        return np.inf
    return (np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1.0)).max(initial=0.0)
