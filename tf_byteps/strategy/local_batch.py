"""This worker's piece of the global batch, and what follows from its size (protocol rule 24).

Keras scales each loss, a mean over the worker's own rows, by 1 / workers. That is right only if all
pieces are equally long. Within a Keras step of a `BytePSStrategy` the factor is `own rows / rows of
all workers` instead, so that the sum of the workers' gradients is the gradient of the whole batch.
The sum of rows is one tiny exchange at the beginning of the step; its answer is there before the
forward pass ends.

An empty piece is replaced by one row of zeros, because layers and losses do strange things without
rows; then the loss counts nothing, every contribution to an exchange is set to exact zeros, and the
variables that a step changes besides the weights (metrics, moving statistics) get their old values
back.

With backup workers nobody knows in time whose rows will count. There each worker's loss is the mean
over its own rows, nothing is exchanged for it, and the gradients are averaged.
"""

import contextlib
import functools
import threading

import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

from tf_byteps import runtime
from tf_byteps.ops import Sum, gather, names, push_pull

_HIGHEST_PRIORITY = 2**31 - 1
_local = threading.local()


class LocalBatch:
    """The piece of the batch that the current Keras step works on.

    Attributes:
        loss_weight: float64 scalar, the factor of this worker's losses: its share of the global
            batch in training, 1 in evaluation.
        is_empty: boolean scalar; `None` if the piece is known not to be.
    """

    def __init__(self, loss_weight, is_empty):
        self.loss_weight = loss_weight
        self.is_empty = is_empty


def current():
    """The `LocalBatch` of the Keras step that this thread runs or traces, or `None`."""
    return getattr(_local, "batch", None)


@contextlib.contextmanager
def _working_on(batch):
    before = current()
    _local.batch = batch
    try:
        yield
    finally:
        _local.batch = before


def contribution(tensor):
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
    shape = tensor.shape
    tensor = tf.cond(batch.is_empty, lambda: tf.zeros_like(tensor), lambda: tf.identity(tensor))
    return tf.ensure_shape(tensor, shape)


def distributed_step(strategy, fn):
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
        return functools.partial(_step, model, fn, False, False)
    if is_collecting_predictions():
        return functools.partial(_predict_step, fn)
    return fn


def _step(model, fn, is_training, is_weighted, data):
    """A training or evaluation step on this worker's piece."""
    rows, static_rows = _rows(data)
    weight = tf.constant(1.0, tf.float64)
    if is_weighted:
        name = names.numbered("rows of the batch")
        # Where the input ends there is no batch, and no worker may ask for its rows, not even for a
        # number that was known before: some would be stopped before they had asked.
        batch = tf.nest.flatten(data, expand_composites=True)
        with tf.control_dependencies([tensor for tensor in batch if tf.is_tensor(tensor)]):
            rows = tf.identity(rows)
        total = push_pull(rows, op=Sum, name=name, priority=_HIGHEST_PRIORITY)
        weight = tf.math.divide_no_nan(tf.cast(rows, tf.float64), tf.cast(total, tf.float64))
    if static_rows:
        with _working_on(LocalBatch(weight, None)):
            return fn(data)
    is_empty = tf.equal(rows, 0)
    variables = _state_besides_weights(model, is_training)
    before = [tf.identity(variable) for variable in variables]
    with _working_on(LocalBatch(weight, is_empty)):
        result = fn(_without_emptiness(data, is_empty))

    def restore():
        for variable, value in zip(variables, before):
            variable.assign(value)
        return tf.constant(True)

    tf.cond(is_empty, restore, lambda: tf.constant(False))
    return result


def _predict_step(fn, data):
    """A prediction for the whole global batch: the workers' pieces, in input order."""
    rows, static_rows = _rows(data)
    if static_rows:
        outputs = fn(data)
    else:
        is_empty = tf.equal(rows, 0)
        outputs = tf.nest.map_structure(
            lambda output: tf.ensure_shape(
                tf.cond(is_empty, lambda: output[:0], lambda: tf.identity(output)),
                [None, *output.shape[1:]],
            ),
            fn(_without_emptiness(data, is_empty)),
        )
    flat = [
        gather(output, names.numbered(f"prediction/{index}"))
        for index, output in enumerate(tf.nest.flatten(outputs))
    ]
    return tf.nest.pack_sequence_as(outputs, flat)


def _rows(data):
    """Rows of this worker's piece: an int64 scalar, and an integer if it is known (or `None`)."""
    for tensor in tf.nest.flatten(data):
        if isinstance(tensor, tf.RaggedTensor):
            return tf.cast(tensor.nrows(), tf.int64), None
        if isinstance(tensor, tf.SparseTensor):
            return tensor.dense_shape[0], None
        if tensor is not None and not isinstance(tensor, tf.experimental.Optional):
            tensor = tf.convert_to_tensor(tensor)
            return tf.shape(tensor, out_type=tf.int64)[0], tensor.shape[0]
    raise ValueError("the batch holds no tensor")


def _without_emptiness(data, is_empty):
    """`data`, or one row of zeros in its place."""

    def one_row(tensor):
        return tf.zeros(tf.concat([[1], tf.shape(tensor)[1:]], 0), tensor.dtype)

    def pad(tensor):
        if isinstance(tensor, (tf.RaggedTensor, tf.SparseTensor, tf.experimental.Optional)):
            return tensor
        if tensor is None:
            return tensor
        tensor = tf.convert_to_tensor(tensor)
        padded = tf.cond(is_empty, lambda: one_row(tensor), lambda: tf.identity(tensor))
        return tf.ensure_shape(padded, [None, *tensor.shape[1:]])

    return tf.nest.map_structure(pad, data)


def _state_besides_weights(model, is_training):
    """The `tf.Variable`s that a step on an empty piece must leave alone."""
    variables = list(model.metrics_variables)
    if is_training:
        # Statistics that are computed together come from the other workers' rows as well. Seeds go
        # on: all workers draw the same numbers, whatever their pieces.
        synchronized = {
            id(variable)
            for layer in model._flatten_layers()
            if getattr(layer, "synchronized", False)
            for variable in layer.non_trainable_variables
        }
        variables += [
            variable
            for variable in model.non_trainable_variables
            if id(variable) not in synchronized and "seed_generator" not in variable.path
        ]
    unique = {id(variable): variable for variable in variables}
    return [variable.value for variable in unique.values()]


@contextlib.contextmanager
def collecting_predictions(active):
    """While active, Keras's prediction steps return the rows of all workers."""
    before = is_collecting_predictions()
    _local.collecting = active
    try:
        yield
    finally:
        _local.collecting = before


def is_collecting_predictions():
    """Whether this thread is in `Model.predict`, whose result is collected from all workers."""
    return getattr(_local, "collecting", False) and runtime.size() > 1
