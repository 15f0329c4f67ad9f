"""Keras steps on this worker's piece of the global batch (protocol rules 24, 35).

The number of all rows is one tiny exchange at the beginning of a step; its answer is there before
the first gradient is. An empty piece is replaced by one row of zeros, because layers and losses do
strange things without rows; and the variables that follow the rows of a step (metrics, moving
statistics; see `variable_kinds`) get their old values back.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tf_byteps.ops import autograph
from tf_byteps.private.keras_tensorflow import TensorFlowTrainer
from tf_byteps.strategy import variable_kinds
from tf_byteps.strategy.step import (
    gradient_uses,
    local_batch,
    local_steps,
    scaling as loss_scaling,
    traces,
)
from tf_byteps.strategy.step.piece_rows import rows_of, without_emptiness
from tf_byteps.strategy.step.predictions import is_collecting_predictions, predict_step
from tf_byteps.types import Logs

_ROWS = "rows of the piece"  # an entry of a step's logs that Keras does not get to see
_rows_of_last_step = weakref.WeakKeyDictionary()  # model -> a scalar tensor


def distributed_step(strategy: tf.distribute.Strategy, fn: Callable[..., Any]) -> Any:
    """Makes a Keras model's step work on pieces of a global batch.

    Any other function is returned as it is.

    Args:
        strategy: the `BytePSStrategy` that runs it.
        fn: what was given to `strategy.run`.

    Returns:
        A function with the same arguments.
    """
    if strategy.num_replicas_in_sync == 1:
        return fn
    model = getattr(fn, "__self__", None)
    name = getattr(fn, "__name__", "")
    called = autograph.as_called_by_program(fn)
    if isinstance(model, TensorFlowTrainer) and name == "train_step":
        return functools.partial(_step, model, called, True, not strategy.backup_workers)
    if isinstance(model, TensorFlowTrainer) and name == "test_step":
        return functools.partial(_step, model, called, False, True)
    if is_collecting_predictions():
        return functools.partial(predict_step, called)
    return fn


def _step(
    model: Any, fn: Callable[..., Any], is_training: bool, is_weighted: bool, data: object
) -> Any:
    """A training or evaluation step on this worker's piece."""
    rows, static_rows = rows_of(data)
    scaling = loss_scaling.of_step(model, is_training)
    counted = local_steps.rows_of_local_step(model) if is_training else None
    is_local = counted is not None
    uses = gradient_uses.of_step(model) if is_training and not is_local else None
    # Where the input ends there is no batch, and no worker may ask for its rows, not even for a
    # number that was known before: some would be stopped before they had asked.
    batch = tf.nest.flatten(data, expand_composites=True)
    with tf.control_dependencies([tensor for tensor in batch if tf.is_tensor(tensor)]):
        rows = tf.identity(rows)
    if is_local:
        counted.assign_add(rows)
        totals = tf.stack([rows, 1])
    else:
        totals = local_batch.row_totals(rows) if is_training and is_weighted else None
    if static_rows:
        piece = local_batch.LocalBatch(rows, None, scaling, totals, is_weighted, uses, is_local)
        with local_batch.working_on(piece), traces.deciding(scaling, uses, static_rows) as results:
            results.append(fn(data))
        return _with_rows(results[0], rows)
    is_empty = tf.equal(rows, 0)
    variables = _state_besides_weights(model, is_training)
    before = [tf.identity(variable) for variable in variables]
    piece = local_batch.LocalBatch(rows, is_empty, scaling, totals, is_weighted, uses, is_local)
    with local_batch.working_on(piece), traces.deciding(scaling, uses, rows) as results:
        results.append(fn(without_emptiness(data, is_empty)))
    result = results[0]

    def restore() -> Any:
        for variable, value in zip(variables, before):
            variable.assign(value)
        return tf.constant(True)

    tf.cond(is_empty, restore, lambda: tf.constant(False))
    return _with_rows(result, rows)


def _with_rows(logs: Logs, rows: tf.Tensor) -> Any:
    return {**logs, _ROWS: rows} if isinstance(logs, dict) else logs


def keeping_rows(model: keras.Model, function: Callable[..., Any]) -> Any:
    """A train or test function of a Keras model that keeps its last step's rows for `last_rows`."""

    def call(iterator: Iterator[Any]) -> Any:
        logs = function(iterator)
        if isinstance(logs, dict) and _ROWS in logs:
            _rows_of_last_step[model] = logs.pop(_ROWS)
        return logs

    return call


def last_rows(model: keras.Model) -> Any:
    """The rows of this worker's piece in the last step of a model, or `None`."""
    rows = _rows_of_last_step.get(model)
    return None if rows is None else int(rows)


def _state_besides_weights(model: keras.Model, is_training: bool) -> list[Any]:
    """The `tf.Variable`s that a step on an empty piece must leave alone."""
    of_rows = variable_kinds.OF_OWN_ROWS if is_training else [variable_kinds.Kind.METRIC]
    return [variable.value for variable in variable_kinds.variables(model, *of_rows)]
