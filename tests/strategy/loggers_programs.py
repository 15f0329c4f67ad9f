"""What the workers of test_loggers.py do: they log a training to folders of their own."""

import contextlib
import csv
import glob
import os
import pathlib
import types

import keras
import numpy as np

import tf_byteps
import tf_byteps.keras
from tf_byteps.wrapping import replaced

_OPTIONS = {
    "histogram_freq": 1,
    "write_images": True,
    "write_steps_per_second": True,
    "update_freq": 1,
    "embeddings_freq": 1,
    "embeddings_metadata": "names.tsv",
}


def _model(strategy):
    keras.utils.set_random_seed(3)
    with strategy.scope():
        layers = [keras.Input([2]), keras.layers.Embedding(5, 4), keras.layers.Flatten()]
        model = keras.Sequential([*layers, keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.1), "mse")
    return model


def _fit(model, callbacks, **options):
    x, y = np.arange(24).reshape(12, 2) % 5, np.ones([12, 1])
    options = {"epochs": 2, "validation_data": (x, y), **options}
    return model.fit(x, y, batch_size=4, callbacks=callbacks, verbose=0, **options)


def _own_folder(folder, name):
    tf_byteps.init()
    mine = pathlib.Path(folder, f"{name} {tf_byteps.rank()}")
    mine.mkdir()
    return mine


def _files(folder):
    """Which kinds of files are in a folder."""
    found = [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]
    kinds = ["events", "xplane.pb", "weights.h5", "projector_config"]
    return sorted({next((k for k in kinds if k in path.name), path.name) for path in found})


def _tags(pattern):
    """The names of the summaries in event files."""
    import tensorflow as tf

    return {
        value.tag
        for path in glob.glob(pattern, recursive=True)
        for event in tf.compat.v1.train.summary_iterator(path)
        for value in event.summary.value
    }


def everything(folder):
    """A `TensorBoard` with all that it can write."""
    mine = _own_folder(folder, "everything")
    callback = keras.callbacks.TensorBoard(mine, profile_batch=(1, 2), **_OPTIONS)
    before = {name: getattr(callback, name) for name in [*_OPTIONS, "log_dir", "write_graph"]}
    model = _model(tf_byteps.BytePSStrategy())
    _fit(model, [callback])
    evaluation = model.evaluate(np.zeros([4, 2]), np.ones([4, 1]), callbacks=[callback], verbose=0)
    assert before == {name: getattr(callback, name) for name in before}
    return {
        "files": _files(mine),
        "weights": [*model.get_weights(), evaluation],
        "uses TensorFlow": isinstance(callback._summary_module, types.ModuleType),
    }


def tables(folder):
    """A `TensorBoard` that saves tables whose rows are spread over the workers."""
    mine = _own_folder(folder, "tables")
    words = tf_byteps.keras.layers.TableConfig("words", 5, 4)
    with tf_byteps.BytePSStrategy().scope():
        feature = tf_byteps.keras.layers.FeatureConfig("word", words)
        ids = keras.Input([], dtype="int64")
        rows = tf_byteps.keras.layers.DistributedEmbedding(feature)(ids)
        model = keras.Model(ids, keras.layers.Dense(1, name="head")(rows))
        model.compile("sgd", "mse")
    callback = keras.callbacks.TensorBoard(mine, embeddings_freq=1)
    model.fit(np.arange(12) % 5, np.ones([12, 1]), 4, callbacks=[callback], verbose=0)
    return _files(mine)


class OwnTensorBoard(keras.callbacks.TensorBoard):
    """One that logs more, with Keras's writers and by its own methods."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.called = []

    def set_model(self, model):
        super().set_model(model)
        self.called.append("set_model")

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        self.called.append("on_train_begin")

    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, logs)
        self.called.append("on_train_batch_end")

    def on_epoch_end(self, epoch, logs=None):
        logs = dict(logs or {}, own=3.0)
        super().on_epoch_end(epoch, logs)
        with self._train_writer.as_default():
            self.summary.scalar("by_hand", 4.0, step=epoch)
        self.called.append("on_epoch_end")


def subclass(folder):
    """Within a default writer of the program's, which gets nothing of a `TensorBoard`."""
    import tensorflow as tf

    mine = str(_own_folder(folder, "subclass"))
    callback = OwnTensorBoard(os.path.join(mine, "logs"), update_freq=1)
    model = _model(tf_byteps.BytePSStrategy())
    writer = tf.summary.create_file_writer(os.path.join(mine, "own"))
    with writer.as_default():
        _fit(model, [callback])
        tf.summary.scalar("of the program", 1.0, step=0)
    writer.close()
    return {
        "called": callback.called,
        "tags": _tags(os.path.join(mine, "logs", "**", "*events*")),
        "own tags": _tags(os.path.join(mine, "own", "*")),
    }


class OwnCSVLogger(keras.callbacks.CSVLogger):
    """One that logs more, and notes what is called."""

    called = ()

    def on_train_begin(self, logs=None):
        self.called += ("begin",)
        super().on_train_begin(logs)
        assert not self.csv_file.closed

    def on_epoch_end(self, epoch, logs=None):
        self.called += ("epoch",)
        super().on_epoch_end(epoch, {**(logs or {}), "own": epoch})

    def on_train_end(self, logs=None):
        super().on_train_end(logs)
        self.called += ("end",)


def csv_logger(folder):
    """Two trainings in one file."""
    path = str(_own_folder(folder, "csv") / "log.csv")
    callback = OwnCSVLogger(path, append=True)
    model = _model(tf_byteps.BytePSStrategy())
    _fit(model, [callback])
    _fit(model, [callback], initial_epoch=2, epochs=3)
    assert callback.filename == path and callback.append and callback.csv_file.closed
    rows = []
    if os.path.exists(path):
        with open(path, newline="") as file:
            rows = [(row["epoch"], row["own"]) for row in csv.DictReader(file)]
    return {"called": callback.called, "rows": rows}


def alone_afterwards(folder):
    """Callbacks of a training together log one of this worker alone, too."""
    mine = _own_folder(folder, "alone")
    board = keras.callbacks.TensorBoard(mine / "board", profile_batch=0, embeddings_freq=1)
    logger = keras.callbacks.CSVLogger(mine / "log.csv")
    _fit(_model(tf_byteps.BytePSStrategy()), [board, logger])
    together = _files(mine)
    if tf_byteps.rank() == 0:
        return {"together": together}
    model = _model(types.SimpleNamespace(scope=contextlib.nullcontext))
    _fit(model, [board, logger])
    return {"together": together, "alone": _files(mine)}


class CSVLoggerWithItsOwnFile(keras.callbacks.CSVLogger):
    """Opens its file without Keras's method."""

    def on_train_begin(self, logs=None):
        self.csv_file = open(self.filename, "w", newline="")


def own_file(folder):
    """The contents of each worker's file."""
    mine = _own_folder(folder, "own_file") / "log.csv"
    _fit(_model(tf_byteps.BytePSStrategy()), [CSVLoggerWithItsOwnFile(mine)])
    return mine.read_text()


def methods():
    """Those of callbacks that log which tf_byteps replaces."""
    tf_byteps.BytePSStrategy()
    owners = [keras.callbacks.CSVLogger, keras.callbacks.TensorBoard]
    return sorted(f"{owner.__name__}.{name}" for owner, name, _ in replaced if owner in owners)
