"""What follows each worker's own rows in a training, and belongs to all workers where others see
it: moving statistics, such as those of BatchNormalization, and what optimizers accumulate.

Within an epoch each worker's statistics follow its own rows. Where the epoch ends, and before an
evaluation or prediction within it, the workers take their mean and go on from it. So they do after
every `train_on_batch`, which has no epochs. Only what has changed and differs is averaged: a
constant keeps its bits.

With accumulated gradients they do the same but before an evaluation or prediction, which uses none.
With local steps these stay each worker's own.
"""

import logging
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from tf_byteps import runtime
from tf_byteps.exchange import host
from tf_byteps.exchange.equality import differing
from tf_byteps.exchange.optimizers import optimizers_of
from tf_byteps.strategy import variable_kinds
from tf_byteps.strategy.fit import framework

_logger = logging.getLogger("tf_byteps")
# Model that trains -> {id of a statistic: its fingerprint when it was last the same everywhere}.
_common = weakref.WeakKeyDictionary()
_warned = set()  # paths
_has_warned_of_saving = False


def begin(model: keras.Model) -> None:
    """Notes that a model's statistics are about to become each worker's own.

    Args:
        model: a `keras.Model` before a step of its training.
    """
    if runtime.size() > 1:
        variables = _statistics(model)
        _common[model] = _by_id(variables, _fingerprints(variables))


def begin_if_new(model: keras.Model) -> None:
    """`begin`, unless the model trains already."""
    if model not in _common:
        begin(model)


def average(model: keras.Model) -> None:
    """Averages a model's statistics if it trains. A collective.

    Args:
        model: a `keras.Model` whose workers have all made the same steps.
    """
    variables = _statistics(model) if model in _common else []
    if not variables or runtime.size() == 1:
        return
    common, now = _common[model], _fingerprints(variables)
    changed = [common.get(id(v)) != number for v, number in zip(variables, now, strict=True)]
    differs = differing("moving statistics that differ", [*now, *changed])
    has_changed = differs[len(now) :] | changed
    chosen = [index for index in range(len(now)) if differs[index] and has_changed[index]]
    if chosen:
        averaged = [variables[index] for index in chosen]
        _average(averaged)
        for index, number in zip(chosen, _fingerprints(averaged), strict=True):
            now[index] = number
        _warn_of_guesses(model, averaged)
    _common[model] = _by_id(variables, now)


def average_all(model: keras.Model) -> None:
    """Averages a model's statistics and accumulated gradients if it trains. A collective.

    Args:
        model: a `keras.Model` whose workers have all made the same steps.
    """
    average(model)
    if model in _common and not framework.current().makes_local_steps(model):
        framework.current().average_accumulated(optimizers_of(model))


def end_epoch(model: keras.Model) -> None:
    """Does `average_all`, and notes that the model's epoch has ended. A collective."""
    average_all(model)
    forget(model)


def warn_if_own(model: keras.Model) -> None:
    """Says once that a program saves what follows this worker's rows. No collective: a program may
    save on one worker.

    Args:
        model: what is saved, a `keras.Model` or a layer.
    """
    global _has_warned_of_saving
    if _has_warned_of_saving or model not in _common:
        return
    variables, common = _statistics(model), _common[model]
    changed = any(
        common.get(id(variable)) != number
        for variable, number in zip(variables, _fingerprints(variables), strict=True)
    )
    own = ["moving statistics"] * changed
    own += ["accumulated gradients"] * framework.current().has_accumulated(optimizers_of(model))
    if own:
        _has_warned_of_saving = True
        _logger.warning(
            "the model %r is saved within an epoch: the file gets the %s of this worker's rows, "
            "not the average over all workers. Save where an epoch ends, or with a "
            "keras.callbacks.ModelCheckpoint or BackupAndRestore that all workers have",
            model.name,
            " and ".join(own),
        )


def forget(model: keras.Model) -> None:
    """Notes that what a model has is the same on all workers, or that worker 0's will count."""
    _common.pop(model, None)


def is_of_own_rows(model: keras.Model) -> bool:
    """Whether a model is in an epoch, or was when its training ended by an exception."""
    return model in _common


def _statistics(model: keras.Model) -> list[Any]:
    return [variable for variable in variable_kinds.variables(model, variable_kinds.Kind.STATISTIC)]


def _by_id(variables: Sequence[keras.Variable], numbers: Sequence[Any]) -> dict[Any, Any]:
    return {id(variable): number for variable, number in zip(variables, numbers, strict=True)}


def _average(variables: Sequence[keras.Variable]) -> None:
    # In float64 and divided first: the sum of the workers' values may overflow.
    parts = [_value(variable).astype(np.float64) / runtime.size() for variable in variables]
    means = host.reduce_fused(parts, "float64", "sum", "moving statistics")
    for variable, mean in zip(variables, means, strict=True):
        variable.assign(mean.astype(_value(variable).dtype))


def _value(variable: keras.Variable) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(variable))


def _fingerprints(variables: Sequence[keras.Variable]) -> list[int]:
    return framework.current().fingerprints(variables) if variables else []


def _warn_of_guesses(model: keras.Model, averaged: Iterable[Any]) -> None:
    ids = {id(variable) for variable in averaged}
    for variable in variable_kinds.guessed_statistics(model):
        path = variable.path
        if id(variable) in ids and path not in _warned and runtime.rank() == 0:
            _warned.add(path)
            _logger.warning(
                "the workers' values of the variable %r differ and are averaged, as those of a "
                "moving statistic. Say what it is: variable.byteps_kind = 'statistic', 'counter' "
                "for a number of steps, or 'own' for what belongs to each worker's rows, such as a "
                "queue of keys",
                path,
            )
