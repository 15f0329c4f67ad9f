"""Rows about metrics, which are global, and about callbacks that decide by them."""

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.conformance.sides import BATCH, STRATEGY, WORKERS, classes, compiled, numbers, row

_ROWS = 29
_VALIDATION_ROWS = 17


def _data(rows=_ROWS, seed=0):
    return numbers(5, rows=rows, seed=seed), numbers(1, rows=rows, seed=seed + 1)


def _values(logs):
    return [np.asarray(logs[key], "float64") for key in sorted(logs)]


def _classifier():
    return keras.Sequential([keras.Input([5]), keras.layers.Dense(3, activation="softmax")])


@row(STRATEGY)
def epoch_and_validation_logs(side):
    """Means, counts, and a metric whose result is not a sum of parts."""
    metrics = ["accuracy", keras.metrics.F1Score(average="macro"), keras.metrics.AUC()]
    model = compiled(side, "adam", "categorical_crossentropy", _classifier, metrics=metrics)
    x, y = numbers(5, rows=_ROWS), np.eye(3)[classes(3, rows=_ROWS)]
    held_out = numbers(5, seed=2, rows=17), np.eye(3)[classes(3, seed=2, rows=17)]
    options = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "epochs": 3}
    history = model.fit(x, y, validation_data=held_out, **options).history
    return _values(history)


@row(STRATEGY)
def validation_split_and_dataset(side):
    model = compiled(side, "adam", metrics=["mae"])
    options = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    split = model.fit(*_data(), validation_split=0.3, **options).history
    dataset = tf.data.Dataset.from_tensor_slices(_data(_VALIDATION_ROWS)).batch(BATCH)
    given = model.fit(*_data(), validation_data=dataset, **options).history
    return _values(split) + _values(given)


@row(STRATEGY)
def evaluate(side):
    """Also with lengths that leave a worker without rows, and with weights."""
    model = compiled(side, "adam", metrics=["mae"], weighted_metrics=["mse"])
    results = []
    for rows in (_ROWS, 25, 3):
        x, y = _data(rows)
        weights = np.linspace(0.0, 2.0, rows).astype("float32")
        results.append(model.evaluate(x, y, batch_size=BATCH, verbose=0))
        results.append(model.evaluate(x, y, sample_weight=weights, batch_size=BATCH, verbose=0))
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
        results.append(model.evaluate(dataset, verbose=0))
        results += _values(model.evaluate(dataset, verbose=0, return_dict=True))
    return results


class RowCounter(keras.Sequential):
    """Counts the rows that this process evaluates."""

    def test_step(self, data):
        def count(x):
            self.rows += len(x)
            return np.int32(0)

        with tf.control_dependencies([tf.numpy_function(count, [data[0]], tf.int32)]):
            return super().test_step(data)


@row(STRATEGY)
def each_worker_evaluates_its_share(side):
    def build():
        model = RowCounter([keras.Input([5]), keras.layers.Dense(1)])
        model.rows = 0
        return model

    model = compiled(side, "adam", build=build)
    model.evaluate(*_data(32), batch_size=BATCH, verbose=0)
    if side.is_single:
        return [[model.rows]]
    assert model.rows == 32 // WORKERS, model.rows
    return [[sum(bps.allgather_object(model.rows, name="evaluated rows"))]]


def _fit(side, callbacks, optimizer, epochs=8):
    model = compiled(side, optimizer, metrics=["mae"])
    history = model.fit(
        *_data(),
        batch_size=BATCH,
        shuffle=False,
        verbose=0,
        epochs=epochs,
        validation_data=_data(_VALIDATION_ROWS, seed=5),
        callbacks=callbacks,
    ).history
    return model, history


@row(STRATEGY)
def early_stopping(side):
    stop = keras.callbacks.EarlyStopping(
        monitor="val_mae", min_delta=0.05, patience=2, restore_best_weights=True
    )
    model, history = _fit(side, [stop], lambda: keras.optimizers.Adam(0.1), epochs=12)
    assert len(history["loss"]) < 12, history
    return [*model.get_weights(), *_values(history)]


@row(STRATEGY)
def reduce_learning_rate_on_plateau(side):
    reduce = keras.callbacks.ReduceLROnPlateau(
        monitor="val_loss", factor=0.5, patience=1, min_delta=0.1
    )
    model, history = _fit(side, [reduce], lambda: keras.optimizers.Adam(0.1))
    assert len(set(history["learning_rate"])) > 2, history
    return [*model.get_weights(), *_values(history)]


@row(STRATEGY)
def learning_rate_scheduler(side):
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1))
    model, history = _fit(side, [scheduler], lambda: keras.optimizers.SGD(0.1), epochs=3)
    return [*model.get_weights(), *_values(history)]


class StopOn(keras.callbacks.Callback):
    """A callback of the user's that decides on one worker alone."""

    def __init__(self, rank, epoch):
        super().__init__()
        self.here, self.epoch = rank, epoch

    def on_epoch_end(self, epoch, logs=None):
        if self.here and epoch == self.epoch:
            self.model.stop_training = True


@row(STRATEGY)
def one_worker_stops_all(side):
    here = side.is_single or side.rank == 1
    _, history = _fit(side, [StopOn(here, 1)], "adam", epochs=5)
    assert len(history["loss"]) == 2, history
    return _values(history)
