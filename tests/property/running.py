"""Runs the cases of seeds: in a single process, or in each worker of a job."""

import contextlib
import functools

import tf_byteps as bps
from tests import side_by_side
from tests.gpu_in_sight import gpu_in_sight
from tests.property import cases


def run_seeds(is_single, folder, seeds, is_compiled):
    """Called in each process.

    Args:
        is_single, folder: see `side_by_side.run`.
        seeds: of the cases.
        is_compiled: whether Keras compiles the models with XLA, as it does by itself on a GPU.
    """
    trainings = {str(seed): functools.partial(_train, seed, is_single) for seed in seeds}
    with gpu_in_sight() if is_compiled else contextlib.nullcontext():
        return side_by_side.run(trainings, is_single, folder)


def _train(seed, is_single, folder):
    del folder
    case = cases.draw(seed)
    scope = contextlib.nullcontext
    if not is_single:
        scope = bps.BytePSStrategy(**case.strategy).scope
    return cases.train(case, scope)
