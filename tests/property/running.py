"""Runs the cases of seeds: in a single process, or in each worker of a job."""

import contextlib
import functools

import keras

import tf_byteps as bps
from tests import side_by_side
from tests.gpu_in_sight import gpu_in_sight
from tests.property import cases, steps


def run_seeds(is_single, folder, seeds, is_compiled):
    """Called in each process.

    Args:
        is_single, folder: see `side_by_side.run`.
        seeds: of the cases.
        is_compiled: whether Keras compiles the models with XLA, as it does by itself on a GPU.
    """
    trainings = {str(seed): functools.partial(_train, seed, is_single) for seed in seeds}
    with (
        gpu_in_sight() if is_compiled else contextlib.nullcontext(),
        side_by_side.float64_where_asked_for(),
    ):
        return side_by_side.run(trainings, is_single, folder)


def _train(seed, is_single, folder):
    del folder
    case = cases.draw(seed)
    scope = contextlib.nullcontext
    if not is_single:
        scope = bps.BytePSStrategy(**case.strategy).scope
    return cases.train(case, scope)


def run_steps(is_single, folder, seeds, mode):
    """Called in each process. `mode` is "graph", "eager" or "compiled"; see `run_seeds`."""
    trainings = {str(seed): functools.partial(_train_step, seed, is_single, mode) for seed in seeds}
    with side_by_side.float64_where_asked_for():
        return side_by_side.run(trainings, is_single, folder)


def _train_step(seed, is_single, mode, folder):
    del folder
    scope = contextlib.nullcontext if is_single else bps.BytePSStrategy().scope
    return steps.train(steps.draw(seed), scope, mode == "eager", mode == "compiled")


def refusals(asked):
    """Called in a worker: what `BytePSStrategy` says of each of these options."""
    assert keras.backend.backend() == "jax"
    bps.init()
    return [_refusal(options) for options in asked]


def _refusal(options):
    try:
        bps.BytePSStrategy(**options)
    except NotImplementedError as error:
        return str(error)
    return ""
