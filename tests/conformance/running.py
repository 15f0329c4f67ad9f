"""Runs the rows: in the single process, or in each worker of a job."""

import importlib
import pathlib
import time
import traceback

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.conformance.sides import ROWS, SIDES, SINGLE

_MODULES = (
    "optimizers",
    "mixed_precision",
    "models",
    "scopes",
    "data",
    "metrics",
    "stopping",
    "files",
)


def all_rows():
    """Name -> `Row`."""
    for module in _MODULES:
        importlib.import_module(f"tests.conformance.{module}")
    return ROWS


def run_rows(mode, folder, names=()):
    """Called in each process.

    Args:
        mode: one of `SIDES`.
        folder: a path for the rows' files, the same for all processes of a job.
        names: of the rows. Default: all that the mode has.

    Returns:
        {row: {"arrays": what it returned, as lists, or "error": a traceback; "seconds"}}.
    """
    if mode != SINGLE:
        bps.init()
    results = {}
    for name, row in all_rows().items():
        if (mode in row.modes or mode == SINGLE) and (not names or name in names):
            begin = time.monotonic()
            results[name] = _run_row(row, mode, pathlib.Path(folder) / name)
            results[name]["seconds"] = time.monotonic() - begin
            print(f"{name}: {results[name]['seconds']:.1f} s", flush=True)
            if mode != SINGLE and not _all_are_here(name, results[name]):
                break
    return results


def _all_are_here(name, result):
    """Waits for the other workers. False if they are stuck: then the rows after this cannot run."""
    try:
        bps.allgather_object(None, name=f"end of {name}")
        return True
    except tf.errors.OpError:
        result["error"] = f"{result.get('error', '')}\n{traceback.format_exc()}"
        return False


def _run_row(row, mode, folder):
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    try:
        arrays = row.train(SIDES[mode](folder))
        result = {"arrays": [np.asarray(array, "float64").tolist() for array in arrays]}
    except Exception:
        result = {"error": traceback.format_exc()}
        print(result["error"], flush=True)
    return result
