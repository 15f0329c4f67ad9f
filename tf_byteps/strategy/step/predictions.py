"""`Model.predict` in a `BytePSStrategy`: each worker predicts its piece, and all get all rows."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.ops import gather, names
from tf_byteps.strategy.step.piece_rows import rows_of, without_emptiness

_local = threading.local()


def predict_step(fn: Callable[..., Any], data: object) -> Any:
    """A prediction for the whole global batch: the workers' pieces, in input order."""
    rows, static_rows = rows_of(data)
    if static_rows:
        outputs = fn(data)
        _check_rows(outputs)
    else:
        is_empty = tf.equal(rows, 0)
        outputs = fn(without_emptiness(data, is_empty))
        _check_rows(outputs)
        outputs = tf.nest.map_structure(
            lambda output: tf.ensure_shape(
                tf.cond(is_empty, lambda: output[:0], lambda: tf.identity(output)),
                [None, *output.shape[1:]],
            ),
            outputs,
        )
    flat = [
        gather(output, names.numbered(f"prediction/{index}"))
        for index, output in enumerate(tf.nest.flatten(outputs))
    ]
    return tf.nest.pack_sequence_as(outputs, flat)


def _check_rows(outputs: object) -> None:
    """Refuses outputs that cannot be put together to those of the whole batch."""
    for index, output in enumerate(tf.nest.flatten(outputs)):
        if output.shape.rank == 0:
            raise ValueError(
                f"predict puts the rows of all workers together, but output {index} of the model "
                "is a scalar, one for each worker's piece of the batch: return a value for each "
                "row, or use predict_on_batch for this worker's own"
            )


@contextlib.contextmanager
def collecting_predictions(model: keras.Model | None) -> Iterator[Any]:
    """Meanwhile the prediction steps of a Keras model return the rows of all workers.

    Args:
        model: a `keras.Model`; `None` if steps return this worker's rows.
    """
    before = getattr(_local, "predicts", None)
    _local.predicts = model
    try:
        yield
    finally:
        _local.predicts = before


def is_collecting_predictions() -> Any:
    """Whether this thread is in `Model.predict`, whose result is collected from all workers."""
    return predicting() is not None


def predicting() -> Any:
    """The model whose `predict` collects the rows of all workers on this thread, or `None`."""
    return getattr(_local, "predicts", None) if runtime.size() > 1 else None
