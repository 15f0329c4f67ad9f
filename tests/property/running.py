"""Runs the cases of seeds: in a single process, or in each worker of a job."""

import contextlib
import functools

import tf_byteps as bps
from tests import side_by_side
from tests.property import cases


def run_seeds(is_single, folder, seeds):
    """Called in each process; see `side_by_side.run`."""
    trainings = {str(seed): functools.partial(_train, seed, is_single) for seed in seeds}
    return side_by_side.run(trainings, is_single, folder)


def _train(seed, is_single, folder):
    del folder
    case = cases.draw(seed)
    scope = contextlib.nullcontext
    if not is_single:
        scope = bps.BytePSStrategy(**case.strategy).scope
    return cases.train(case, scope)
