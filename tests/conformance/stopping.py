"""Rows about trainings that end within an epoch, and about logs that are read there."""

import re

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.conformance.sides import BATCH, STRATEGY, compiled, numbers, row

_ROWS = 29
_ON_WORKER_1 = 2 * BATCH - 1  # a row of the second batch's last piece


def _fit(side, callbacks, model=None, **options):
    """Returns what is the same on all workers: how far they got, and to which weights."""
    model = model or compiled(side, lambda: keras.optimizers.SGD(0.1), metrics=["mae"])
    x, y = numbers(5, rows=_ROWS), numbers(1, rows=_ROWS, seed=1)
    options = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "epochs": 3, **options}
    logs = model.fit(options.pop("x", x), y, callbacks=callbacks, **options).history
    steps = np.array(model.optimizer.iterations)
    return [steps, *model.get_weights(), *(logs[key] for key in sorted(logs))]


class Stop(keras.callbacks.Callback):
    """Stops on one worker alone, in one of the places where a callback can."""

    def __init__(self, here, epoch=1, batch=None):
        super().__init__()
        self.here, self.when = here, (epoch, batch)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        self._stop_at((epoch, None))

    def on_train_batch_end(self, batch, logs=None):
        self._stop_at((self.epoch, batch))

    def _stop_at(self, now):
        if self.here and now == self.when:
            self.model.stop_training = True


def _here(side):
    return side.is_single or side.rank == 1


@row(STRATEGY)
def one_worker_stops_all_after_a_batch(side):
    results = _fit(side, [Stop(_here(side), batch=1)])
    assert results[0] == 4 + 2, results[0]
    return results


@row(STRATEGY)
def only_one_worker_has_the_callback(side):
    """The others learn of it when the training begins."""
    results = _fit(side, [Stop(True, batch=1)] if _here(side) else None)
    assert results[0] == 4 + 2, results[0]
    return results


@row(STRATEGY)
def one_worker_stops_all_from_a_list_of_callbacks(side):
    here, steps = _here(side), []

    def stop(batch, logs):
        steps.append(batch)
        model.stop_training = here and len(steps) == 3

    model = compiled(side, lambda: keras.optimizers.SGD(0.1), metrics=["mae"])
    stopping = [keras.callbacks.LambdaCallback(on_train_batch_end=stop)] if here else []
    container = keras.callbacks.CallbackList(stopping, add_history=True, model=model, epochs=3)
    results = _fit(side, container, model)
    assert results[0] == 3, results[0]
    return results


@row(STRATEGY)
def one_worker_stops_all_at_the_beginning_of_an_epoch(side):
    """Keras then stops after one batch."""
    results = _fit(side, [Stop(_here(side))])
    assert results[0] == 4 + 1, results[0]
    return results


@row(STRATEGY)
def one_worker_stops_all_after_an_execution_of_steps(side):
    model = compiled(side, lambda: keras.optimizers.SGD(0.1), steps_per_execution=2)
    results = _fit(side, [Stop(_here(side), batch=1)], model)
    assert results[0] == 4 + 2, results[0]
    return results


@row(STRATEGY)
def terminate_on_nan(side):
    """Only worker 1 has the row: the training ends at the same batch as in the single process."""
    x = numbers(5, rows=_ROWS)
    x[_ON_WORKER_1] = np.nan
    steps, *values = _fit(side, [keras.callbacks.TerminateOnNaN()], x=x)
    assert steps == 2, steps
    return [steps, *(np.isnan(value) for value in values)]


# Logs within an epoch.


def _labels_that_workers_see_differently():
    """Worker 0's rows are learned, those of worker 1 grow harder: their losses go apart."""
    y = numbers(1, rows=_ROWS, seed=1)
    y[np.arange(_ROWS) % BATCH >= BATCH // 2] *= 3.0
    return y


@row(STRATEGY)
def model_checkpoint_after_batches(side):
    """It decides, and names files, by the loss of all rows so far."""
    folder = side.folder / f"of-{side.rank}"
    model = compiled(side, lambda: keras.optimizers.SGD(0.1), metrics=["mae"])
    path = folder / "{epoch}_{batch}_{loss:.6f}.weights.h5"
    options = {"monitor": "loss", "save_best_only": True, "save_weights_only": True}
    best = keras.callbacks.ModelCheckpoint(path, save_freq=3, **options)
    model.fit(
        numbers(5, rows=_ROWS),
        _labels_that_workers_see_differently(),
        **{"batch_size": BATCH, "shuffle": False, "verbose": 0, "epochs": 5, "callbacks": [best]},
    )
    saved = [re.findall("[0-9.]+[0-9]|[0-9]+", file.name)[:3] for file in folder.glob("*")]
    assert bool(saved) == (side.rank == 0), saved
    saved = sorted([float(number) for number in file] for file in saved)
    if not side.is_single:
        saved = bps.broadcast_object(saved, 0, name="saved")
    assert len(saved) < 6, saved
    return [[best.best], saved, *model.get_weights()]


@row(STRATEGY)
def model_checkpoint_on_one_worker_only(side):
    """As programs for other libraries have it: then the logs are this worker's."""
    path = side.folder / "{epoch}_{batch}.keras"
    checkpoint = keras.callbacks.ModelCheckpoint(
        path, monitor="loss", save_best_only=True, save_freq=3
    )
    results = _fit(side, [checkpoint] if side.rank == 0 else [])
    assert side.rank != 0 or list(side.folder.glob("*.keras"))
    return results


class OwnLogs(keras.Sequential):
    """Returns a number that no metric keeps."""

    def train_step(self, data):
        x, y = data
        logs = super().train_step(data)
        return {**logs, "error": tf.reduce_mean(tf.abs(self(x) - y))}


@row(STRATEGY)
def logs_of_an_own_train_step(side):
    def build():
        return OwnLogs([keras.Input([5]), keras.layers.Dense(1)])

    model = compiled(side, lambda: keras.optimizers.SGD(0.1), build=build)
    slower = keras.callbacks.ReduceLROnPlateau("error", patience=1, mode="min", min_delta=0.1)
    side.fit(model, numbers(5), numbers(1, seed=1), epochs=4, callbacks=[slower])
    logs = model.history.history
    return [logs["error"], logs["learning_rate"], *model.get_weights()]
