"""Runs the rows: in the single process, or in each worker of a job."""

import contextlib
import functools
import importlib

import keras
import numpy as np

from tests import side_by_side
from tests.conformance.sides import ROWS, SIDES, SINGLE
from tests.gpu_in_sight import gpu_in_sight

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


def run_rows(mode, folder, names=(), is_compiled=False):
    """Called in each process.

    Args:
        mode: one of `SIDES`.
        folder: a path for the rows' files, the same for all processes of a job.
        names: of the rows. Default: all that the mode has.
        is_compiled: whether Keras compiles the models with XLA, as it does by itself on a GPU.

    Returns:
        {row: {"arrays": what it returned, as lists}, or {"error": a traceback}}.
    """
    trainings = {
        name: functools.partial(_train, row, mode)
        for name, row in all_rows().items()
        if (mode in row.modes or mode == SINGLE) and (not names or name in names)
    }
    with gpu_in_sight() if is_compiled else contextlib.nullcontext():
        return side_by_side.run(trainings, mode == SINGLE, folder)


def _train(row, mode, folder):
    keras.utils.set_random_seed(1)
    return {"arrays": [np.asarray(a, "float64").tolist() for a in row.train(SIDES[mode](folder))]}
