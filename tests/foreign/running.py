"""Runs the programs: in a single process, or in each worker of a job."""

import contextlib
import functools
import importlib

import keras

import tf_byteps as bps
from tests import side_by_side
from tests.foreign.table import PROGRAMS

_MODULES = (
    "images",
    "contrastive",
    "generative",
    "text",
    "tables",
    "steps",
    "processed",
    "guided",
    "fitting",
)


def all_programs():
    """Name -> `Program`."""
    for module in _MODULES:
        importlib.import_module(f"tests.foreign.{module}")
    return PROGRAMS


def run_programs(is_single, folder, names):
    """Called in each process; see `side_by_side.run`. `names` are those of the programs."""
    trainings = {name: functools.partial(_run, all_programs()[name], is_single) for name in names}
    return side_by_side.run(trainings, is_single, folder)


def _run(program, is_single, folder):
    keras.config.set_floatx(program.dtype)
    keras.config.set_dtype_policy(program.dtype)
    scope = contextlib.nullcontext
    if not is_single:
        scope = bps.BytePSStrategy(**program.strategy).scope
    with side_by_side.float64_where_asked_for():
        return program.train(scope, folder)
