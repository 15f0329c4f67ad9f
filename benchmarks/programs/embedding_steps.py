"""A TensorFlow worker that trains a click predictor of DLRM's kind, with many tables."""

import time

import keras
import numpy as np
import tensorflow as tf

import tf_byteps
from benchmarks.programs.tensorflow_worker import join as join, leave as leave
from tf_byteps import _engine
from tf_byteps.keras import layers, optimizers
from tf_byteps.tables import lookup

_NUMBERS = 13  # dense features
_alltoall = lookup.alltoall
_training = {}


def prepare(placement, tables, rows, width, batch):
    """Makes the model, and one batch of which all steps are.

    Args:
        placement: "workers" or "servers"; "copies" if each worker has all tables, as layers of
            Keras.
        tables: their number, each with a feature.
        rows: of a table.
        width: of a row.
        batch: samples of all workers.
    """
    names = [f"feature_{number}" for number in range(tables)]
    random = np.random.default_rng(0)  # the same on all workers
    shares = np.arange(1, rows + 1) ** -1.05
    ids = random.choice(rows, (batch, tables), p=shares / shares.sum())
    x = {name: ids[:, number] for number, name in enumerate(names)}
    x["numbers"] = random.normal(size=(batch, _NUMBERS)).astype("float32")
    y = (ids.sum(1) % 3 == 0).astype("float32")
    keras.utils.set_random_seed(0)
    with tf_byteps.BytePSStrategy().scope():
        model = _model(placement, names, rows, width)
    _training.update(model=model, batch=(x, y))


def _model(placement, names, rows, width):
    inputs = {name: keras.Input([], dtype="int64", name=name) for name in names}
    if placement == "copies":
        found = {name: keras.layers.Embedding(rows, width)(inputs[name]) for name in names}
    else:
        found = _distributed(placement, inputs, rows, width)
    inputs = {**inputs, "numbers": keras.Input([_NUMBERS], name="numbers")}
    bottom = _perceptron(inputs["numbers"], 64, width)
    vectors = keras.ops.stack([bottom, *(found[name] for name in names)], 1)
    products = keras.ops.matmul(vectors, keras.ops.transpose(vectors, [0, 2, 1]))
    joined = keras.layers.Concatenate()([bottom, keras.layers.Flatten()(products)])
    click = keras.layers.Dense(1, "sigmoid")(_perceptron(joined, 64, 32))
    return keras.Model(inputs, click)


def _distributed(placement, inputs, rows, width):
    options = {}
    if placement == "servers":
        options = {"placement": "servers", "optimizer": optimizers.RowWiseAdagrad(0.05)}
        options["initializer"] = keras.initializers.RandomUniform(-0.05, 0.05, seed=1)
    tables = {name: layers.TableConfig(name, rows, width, **options) for name in inputs}
    features = {name: layers.FeatureConfig(name, table) for name, table in tables.items()}
    return layers.DistributedEmbedding(features)(inputs)


def _perceptron(tensor, *widths):
    for width in widths:
        tensor = keras.layers.Dense(width, "relu")(tensor)
    return tensor


def begin(ids_are_known):
    """Traces the step, and makes one.

    Args:
        ids_are_known: whether the workers leave out to ask each other for rows, as if they had
            done so before the step: all batches are equal.
    """
    if ids_are_known:
        _note_ids()
        lookup.alltoall = _known
    _compile()
    _fit(2)
    lookup.alltoall = _alltoall


def steps(number):
    """Makes some steps.

    Returns:
        When they began and ended on the clock of all processes, the bytes pushed and received, the
        CPU time of this process, and the last loss.
    """
    tf_byteps.push_pull(0.0, name="together")
    before, cpu = _engine.worker_counters(), time.process_time()
    spans, losses = _fit(number)
    after = _engine.worker_counters()
    moved = [after[name] - before[name] for name in ("pushed_bytes", "received_bytes")]
    return [*spans, *moved, time.process_time() - cpu, losses[-1]]


def _compile():
    _training["model"].compile(
        optimizers.RowWiseAdagrad(0.05), "binary_crossentropy", jit_compile=False
    )


class _Times(keras.callbacks.Callback):
    """When the first of some steps began and the last one ended, without the epoch's ends."""

    def __init__(self):
        super().__init__()
        self.began, self.ended = None, None

    def on_train_batch_begin(self, batch, logs=None):
        del batch, logs
        self.began = self.began or time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        del batch, logs
        self.ended = time.monotonic()


def _fit(number):
    batches = tf.data.Dataset.from_tensors(_training["batch"]).cache().repeat(number)
    times = _Times()
    history = _training["model"].fit(batches, verbose=0, callbacks=[times])
    return (times.began, times.ended), history.history["loss"]


_ids = {}


def _note_ids():
    def noting(tensor, splits, name, priority):
        wanted, counts = _alltoall(tensor, splits, name=name, priority=priority)
        if name.endswith("/indices"):

            def note(*found):
                _ids[name] = found
                return np.int32(0)

            with tf.control_dependencies([tf.numpy_function(note, [wanted, counts], tf.int32)]):
                wanted = tf.identity(wanted)
        return wanted, counts

    lookup.alltoall = noting
    _compile()
    _fit(1)


def _known(tensor, splits, name, priority):
    if name in _ids:
        return tuple(map(tf.constant, _ids[name]))
    return _alltoall(tensor, splits, name=name, priority=priority)
