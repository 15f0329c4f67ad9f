"""This worker's piece of the global batch, and what follows from its size (protocol rules 24, 35).

A worker's loss is a mean over its own rows, and pieces of a batch may have different lengths. So
within a Keras step of a `BytePSStrategy` each worker's gradients are weighted by its share of the
rows before anything is done with them: before Keras accumulates, clips or looks for overflow. Their
sum is then the gradient of the whole batch, however the loss was written. The number of all rows is
one tiny exchange at the beginning of the step; its answer is there before the first gradient is.

An empty piece is replaced by one row of zeros, because layers and losses do strange things without
rows; then every contribution to an exchange is set to exact zeros, and the variables that follow
the rows of a step (metrics, moving statistics; see `variable_kinds`) get their old values back.

With backup workers nobody knows in time whose rows will count. There each worker's mean counts
alike, and nothing is exchanged for it.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.exchange.optimizers import is_overwritten
from tf_byteps.ops import Sum, compiling, gather, names, push_pull
from tf_byteps.private.keras_tensorflow import TensorFlowTrainer
from tf_byteps.strategy import variable_kinds
from tf_byteps.strategy.step import (
    gradient_uses,
    local_steps,
    scaling as loss_scaling,
    traces,
)
from tf_byteps.types import Exchanged, Gradient, Logs, Variable

_HIGHEST_PRIORITY = 2**31 - 1
_ROWS = "rows of the piece"  # an entry of a step's logs that Keras does not get to see
_local = threading.local()
_rows_of_last_step = weakref.WeakKeyDictionary()  # model -> a scalar tensor


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
def _working_on(batch: LocalBatch | None) -> Iterator[Any]:
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
    if isinstance(model, TensorFlowTrainer) and name == "train_step":
        return functools.partial(_step, model, fn, True, not strategy.backup_workers)
    if isinstance(model, TensorFlowTrainer) and name == "test_step":
        return functools.partial(_step, model, fn, False, True)
    if is_collecting_predictions():
        return functools.partial(_predict_step, fn)
    return fn


def _step(
    model: Any,
    fn: Callable[..., Any],
    is_training: bool,
    is_weighted: bool,
    data: object,
) -> Any:
    """A training or evaluation step on this worker's piece."""
    rows, static_rows = _rows(data)
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
        totals = row_totals(rows) if is_training and is_weighted else None
    if static_rows:
        piece = LocalBatch(rows, None, scaling, totals, is_weighted, uses, is_local)
        with _working_on(piece), traces.deciding(scaling, uses, static_rows) as results:
            results.append(fn(data))
        return _with_rows(results[0], rows)
    is_empty = tf.equal(rows, 0)
    variables = _state_besides_weights(model, is_training)
    before = [tf.identity(variable) for variable in variables]
    piece = LocalBatch(rows, is_empty, scaling, totals, is_weighted, uses, is_local)
    with _working_on(piece), traces.deciding(scaling, uses, rows) as results:
        results.append(fn(_without_emptiness(data, is_empty)))
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


def _predict_step(fn: Callable[..., Any], data: object) -> Any:
    """A prediction for the whole global batch: the workers' pieces, in input order."""
    rows, static_rows = _rows(data)
    if static_rows:
        outputs = fn(data)
        _check_rows(outputs)
    else:
        is_empty = tf.equal(rows, 0)
        outputs = fn(_without_emptiness(data, is_empty))
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


def _rows(data: object) -> Any:
    """Rows of this worker's piece: an int64 scalar, and an integer if it is known (or `None`)."""
    for tensor in tf.nest.flatten(data):
        if isinstance(tensor, tf.RaggedTensor):
            return tf.cast(tensor.nrows(), tf.int64), None
        if isinstance(tensor, tf.SparseTensor):
            # No view: what is computed from it could be written to the program's own array.
            return tf.gather(tensor.dense_shape, 0), None
        if tensor is not None and not isinstance(tensor, tf.experimental.Optional):
            tensor = tf.convert_to_tensor(tensor)
            return tf.shape(tensor, out_type=tf.int64)[0], tensor.shape[0]
    raise ValueError("the batch holds no tensor")


def _without_emptiness(data: object, is_empty: tf.Tensor | None) -> Any:
    """`data`, or one row of zeros in its place."""

    def one_row(tensor: tf.Tensor) -> Any:
        return tf.zeros(tf.concat([[1], tf.shape(tensor)[1:]], 0), tensor.dtype)

    def pad(tensor: Exchanged) -> Any:
        if isinstance(tensor, (tf.RaggedTensor, tf.SparseTensor, tf.experimental.Optional)):
            return tensor
        if tensor is None:
            return tensor
        tensor = tf.convert_to_tensor(tensor)
        if compiling.is_compiled():
            # A branch that has another shape would have an unknown one, which few operations take.
            missing = 1 - tf.minimum(tf.shape(tensor)[0], 1)
            paddings: Any = [[0, missing], *[[0, 0]] * (tensor.shape.rank - 1)]
            padded = tf.pad(tensor, paddings)
        else:
            padded = tf.cond(is_empty, lambda: one_row(tensor), lambda: tf.identity(tensor))
        return tf.ensure_shape(padded, [None, *tensor.shape[1:]])

    return tf.nest.map_structure(pad, data)


def _state_besides_weights(model: Any, is_training: bool) -> list[Any]:
    """The `tf.Variable`s that a step on an empty piece must leave alone."""
    of_rows = variable_kinds.OF_OWN_ROWS if is_training else [variable_kinds.Kind.METRIC]
    return [variable.value for variable in variable_kinds.variables(model, *of_rows)]


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
