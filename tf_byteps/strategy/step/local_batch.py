"""This worker's piece of the global batch, and what follows from its size (protocol rules 24, 35).

A worker's loss is a mean over its own rows, and pieces of a batch may have different lengths. So
within a Keras step of a `BytePSStrategy` each worker's gradients are weighted by its share of the
rows before anything is done with them: before Keras accumulates, clips or looks for overflow. Their
sum is then the gradient of the whole batch, however the loss was written. Every contribution of an
empty piece to an exchange is set to exact zeros. `piece_steps` makes the steps work on a piece.

With backup workers nobody knows in time whose rows will count. There each worker's mean counts
alike, and nothing is exchanged for it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.exchange.optimizers import is_overwritten
from tf_byteps.ops import Sum, compiling, names, push_pull
from tf_byteps.strategy.step import gradient_uses, scaling as loss_scaling
from tf_byteps.types import Exchanged, Gradient, Variable

_HIGHEST_PRIORITY = 2**31 - 1
_local = threading.local()


class LocalBatch:
    """The piece of the batch that the current Keras step works on.

    Args:
        rows: an int64 scalar, the number of this worker's rows.
        is_empty: a boolean scalar; `None` if the piece is known not to be empty.
        scaling: the step's `LossScaling`.
        totals: an int64 tensor, the rows of all workers and the number of workers; `None` if they
            have not been exchanged.
        is_weighted: whether gradients are weighted by the workers' rows.
        gradients: the step's `GradientUses`; `None` if it cannot do anything unusual with them.
        is_local: whether the step exchanges no gradients: the piece is all that it knows.
    """

    def __init__(
        self,
        rows: tf.Tensor,
        is_empty: tf.Tensor | None,
        scaling: loss_scaling.LossScaling,
        totals: tf.Tensor | None = None,
        is_weighted: bool = True,
        gradients: gradient_uses.GradientUses | None = None,
        is_local: bool = False,
    ) -> None:
        self.is_local = is_local
        self.is_empty = is_empty
        self.scaling = scaling
        self.gradients = gradients
        self._rows = rows
        self._totals = totals
        self._is_weighted = is_weighted

    @property
    def rows(self) -> Any:
        """The number of this worker's rows, an int64 scalar."""
        return self._rows

    @property
    def share(self) -> Any:
        """This worker's share of the rows of the global batch, a float64 scalar."""
        return self._relative_rows(self._exchanged()[0])

    @property
    def relative_share(self) -> Any:
        """The share in units of that of equally long pieces, a float64 scalar."""
        total, workers = tf.unstack(self._exchanged())
        return self._relative_rows(total, workers)

    @property
    def gradient_factor(self) -> Any:
        """What a gradient is multiplied by before the average over the workers, a float64 scalar.

        Exactly 1 if all pieces are equally long and no loss is scaled by the user.
        """
        # A loss that is divided by the number of workers asks for a sum, not for an average.
        unit = runtime.size() if self.scaling.is_by_user else 1
        if not self._is_weighted:
            return tf.constant(unit, tf.float64)
        return self.relative_share * unit

    def _exchanged(self) -> Any:
        # Not kept: it may be asked for in a branch of the traced step.
        return row_totals(self._rows) if self._totals is None else self._totals

    def _relative_rows(self, total: tf.Tensor, factor: tf.Tensor | int = 1) -> Any:
        own, total = tf.cast(self._rows * factor, tf.float64), tf.cast(total, tf.float64)
        return tf.math.divide_no_nan(own, total)


def row_totals(rows: tf.Tensor) -> Any:
    """The rows of all workers, and the number of workers, in one exchange.

    Args:
        rows: an int64 scalar, this worker's.

    Returns:
        An int64 tensor of shape `[2]`.
    """
    # The workers are counted by what they send: a traced function must not hold their number
    # (protocol rule 16).
    name = names.numbered("rows of the batch")
    return push_pull(tf.stack([rows, 1]), op=Sum, name=name, priority=_HIGHEST_PRIORITY)


def current() -> Any:
    """The `LocalBatch` of the Keras step that this thread runs or traces, or `None`."""
    return getattr(_local, "batch", None)


@contextlib.contextmanager
def working_on(batch: LocalBatch | None) -> Iterator[Any]:
    """Meanwhile `current` is this `LocalBatch`."""
    before = current()
    _local.batch = batch
    try:
        yield
    finally:
        _local.batch = before


def contribution(tensor: Exchanged) -> Any:
    """What this worker contributes to an exchange: exact zeros if its batch is empty.

    Args:
        tensor: a `tf.Tensor` or `tf.IndexedSlices`.

    Returns:
        The same kind, shape and dtype.
    """
    batch = current()
    if batch is None or batch.is_empty is None:
        return tensor
    if isinstance(tensor, tf.IndexedSlices):
        return tf.IndexedSlices(contribution(tensor.values), tensor.indices, tensor.dense_shape)
    dense = tf.convert_to_tensor(tensor)
    result = tf.cond(batch.is_empty, lambda: tf.zeros_like(dense), lambda: tf.identity(dense))
    return tf.ensure_shape(result, dense.shape)


def weighted(gradients: Sequence[Gradient], variables: Sequence[Variable | None]) -> Any:
    """This worker's contributions to the averages of gradients over all workers.

    Args:
        gradients: a list of `tf.Tensor`, `tf.IndexedSlices` or `None`: of losses that are means
            over the worker's rows.
        variables: the `keras.Variable`s that they are gradients of. What overwrites a variable is
            no gradient, and stays.

    Returns:
        A list of the same kinds, shapes and dtypes: exact zeros if the piece is empty.
    """
    batch = current()
    if batch is None:
        return gradients
    # Where a branch is chosen.
    place = contextlib.nullcontext() if compiling.is_compiled() else tf.device("/device:CPU:0")
    with place:
        factor = batch.gradient_factor
    return [
        gradient if gradient is None or is_overwritten(variable) else _weighted(gradient, factor)
        for gradient, variable in zip(gradients, variables, strict=True)
    ]


def _weighted(gradient: Exchanged, factor: tf.Tensor | int) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        values = _weighted(gradient.values, factor)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    gradient = tf.convert_to_tensor(gradient)
    wide = tf.float32 if gradient.dtype.size < tf.float32.size else gradient.dtype

    def multiply() -> Any:
        # Zeros for an empty piece, whatever the padding row has made of the gradient.
        product = tf.math.multiply_no_nan(tf.cast(gradient, wide), tf.cast(factor, wide))
        return tf.cast(product, gradient.dtype)

    if compiling.is_compiled():  # fused with what follows; a branch would wait for the GPU
        return multiply()
    # Mostly all pieces are equally long: then nothing is computed.
    is_one = tf.equal(factor, 1)
    result = tf.cond(is_one, lambda: tf.identity(gradient), multiply)
    return tf.ensure_shape(result, gradient.shape)
