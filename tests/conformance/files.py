"""Rows about saved models and checkpoints."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.conformance.sides import BATCH, OPTIMIZER, STEPS, STRATEGY, compiled, numbers, row

_OPEN_PLAINLY = """
import json, sys
sys.modules["tf_byteps"] = None  # as if it were not installed
import keras, numpy
model = keras.models.load_model(sys.argv[1])
model.fit(numpy.ones([4, 5]), numpy.ones([4, 1]), verbose=0, epochs=0)
inputs = numpy.array(json.loads(sys.argv[2]), "float32")
print(json.dumps(model.predict(inputs, verbose=0).tolist()))
"""


def _adam():
    return keras.optimizers.Adam(0.05)


def _trained(side, optimizer=_adam):
    model = compiled(side, optimizer)
    side.fit(model, numbers(5), numbers(1, seed=1))
    return model


def _go_on(side, model):
    side.fit(model, numbers(5), numbers(1, seed=1))
    return [*model.get_weights(), np.array(model.optimizer.iterations)]


def _meet(side):
    """Until all workers are here: a file that one writes is there for the others."""
    if not side.is_single:
        bps.allgather_object(None, name="meeting")


def _save(side, model, name="model.keras"):
    """Every worker saves, as a program without `if rank == 0` does, to a path of its own."""
    path = side.folder / f"{side.rank}-{name}"
    model.save(path)
    return path


@row(OPTIMIZER)
def saved_and_loaded(side):
    """The file of a distributed model opens in plain Keras, and training goes on from it."""
    path = _save(side, _trained(side))
    model = keras.models.load_model(path)
    assert type(model.optimizer) is keras.optimizers.Adam, type(model.optimizer)
    assert int(model.optimizer.iterations) == STEPS
    return _go_on(side, model if side.is_single else bps.keras.load_model(path))


@row(STRATEGY)
def loaded_in_the_scope(side):
    path = _save(side, _trained(side))
    with side.scope():
        model = keras.models.load_model(path)
    return _go_on(side, model)


@row(STRATEGY)
def loaded_and_compiled_in_the_scope(side):
    """A new optimizer for a loaded model."""
    path = _save(side, _trained(side))
    with side.scope():
        model = keras.models.load_model(path, compile=False)
        model.compile("adam", "mse")
    return _go_on(side, model)


@row(STRATEGY)
def loaded_outside_the_scope(side):
    """It is an ordinary model of one process then: every worker trains it alone, alike."""
    path = _save(side, _trained(side))
    model = keras.models.load_model(path)
    assert int(model.optimizer.iterations) == STEPS
    return _go_on(side, model)


@row(STRATEGY)
def loaded_from_rank_0_weights(side):
    """Only worker 0 can load the weights; the others get them from it."""
    if side.is_single:
        return _go_on(side, _trained(side))
    path = side.folder / "model.weights.h5"
    model = _trained(side)
    if side.rank == 0:
        model.save_weights(path)
    with side.scope():
        model = keras.models.clone_model(model)
        model.compile(_adam(), "mse")
        model.optimizer.build(model.trainable_variables)
    if side.rank == 0:
        model.load_weights(path)
    return _go_on(side, model)


@row()
def opens_without_tf_byteps(side):
    model = _trained(side)
    path = _save(side, model)
    if side.is_single:
        return [model.predict(numbers(5), verbose=0)]
    outputs = None
    if side.rank == 0:
        command = [sys.executable, "-c", _OPEN_PLAINLY, path, json.dumps(numbers(5).tolist())]
        plain = subprocess.run(command, capture_output=True, text=True, timeout=200)
        assert plain.returncode == 0, plain.stderr
        outputs = json.loads(plain.stdout.splitlines()[-1])
    return [bps.broadcast_object(outputs, 0, name="plain")]


@row(STRATEGY)
def tensorflow_checkpoint(side):
    """`tf.train.Checkpoint` of the model and its optimizer, restored before training goes on."""
    model = _trained(side)
    prefix = os.fspath(side.folder / f"{side.rank}-checkpoint")
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(prefix)
    side.fit(model, -numbers(5), numbers(1, seed=1))
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).read(path)
    return _go_on(side, model)


_WAYS_TO_SAVE = {
    "model.keras": {},
    "model.h5": {},
    "folder": {"zipped": False},
    "all.weights.h5": {},
    "parts.weights.json": {"max_shard_size": 4e-7},
}


@row(STRATEGY)
def all_workers_save_to_one_path(side):
    """At the same time, again and again; each can read at once what it has saved."""
    model = _trained(side)
    expected = model.get_weights()
    for name, options in _WAYS_TO_SAVE.items():
        path = side.folder / name
        for _ in range(1 if side.is_single else 10):
            if ".weights." in name:
                model.save_weights(path, **options)
                model.set_weights([np.zeros_like(weights) for weights in expected])
                model.load_weights(path)
            else:
                model.save(path, **options)
                model = keras.models.load_model(path, compile=False)
            for weights, saved in zip(expected, model.get_weights(), strict=True):
                np.testing.assert_array_equal(weights, saved)
    _meet(side)
    left = sorted(path.name for path in side.folder.iterdir() if path.name.startswith("."))
    assert not left, left
    return expected


@row(STRATEGY)
def one_worker_saves(side):
    """As programs for other libraries do it: nobody waits for the others."""
    model = _trained(side)
    if side.rank == 0:
        model.save(side.folder / "model.keras")
    return _go_on(side, model)


# Callbacks that write. All workers are given the same path.


def _fit(side, callbacks, model=None, epochs=3, **options):
    model = model or compiled(side, _adam, metrics=["mae"])
    options = {"batch_size": BATCH, "shuffle": False, "verbose": 0, **options}
    validation = numbers(5, seed=4, rows=17), numbers(1, seed=5, rows=17)
    arrays = numbers(5, rows=29), numbers(1, seed=1, rows=29)
    history = model.fit(
        *arrays, epochs=epochs, validation_data=validation, callbacks=callbacks, **options
    )
    return model, history.history


def _private(side):
    """A folder that only this worker sees."""
    folder = side.folder / f"of-{side.rank}"
    folder.mkdir(exist_ok=True)
    return folder


def _assert_only_rank_0_wrote(side, folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert bool(files) == (side.rank == 0), files


@row(STRATEGY)
def model_checkpoint(side):
    folder = _private(side)
    path = folder / "best-{epoch}.keras"
    checkpoint = keras.callbacks.ModelCheckpoint(path, monitor="val_mae", save_best_only=True)
    model, history = _fit(side, [checkpoint])
    _assert_only_rank_0_wrote(side, folder)
    epochs = sorted(int(path.stem.split("-")[1]) for path in folder.glob("*.keras"))
    if not side.is_single:
        epochs = bps.broadcast_object(epochs, 0, name="saved epochs")
    # What it decided is known to all workers.
    return [[checkpoint.best], epochs, history["val_mae"], *model.get_weights()]


@row(STRATEGY)
def model_checkpoint_in_one_file(side):
    """All workers name one file: one of them writes it, and all can load it."""
    path = side.folder / "last.weights.h5"
    checkpoint = keras.callbacks.ModelCheckpoint(path, save_weights_only=True)
    model, _ = _fit(side, [checkpoint])
    _meet(side)
    model.load_weights(path)
    return _go_on(side, model)


@row(STRATEGY)
def csv_logger(side):
    folder = _private(side)
    _, history = _fit(side, [keras.callbacks.CSVLogger(folder / "log.csv")])
    _assert_only_rank_0_wrote(side, folder)
    if side.rank == 0:
        lines = (folder / "log.csv").read_text().splitlines()
        assert len(lines) == 4, lines
        column = lines[0].split(",").index("val_loss")
        logged = [float(line.split(",")[column]) for line in lines[1:]]
        np.testing.assert_allclose(logged, history["val_loss"], rtol=1e-6)
    return [history["val_loss"]]


@row(STRATEGY)
def tensorboard(side):
    folder = _private(side)
    model, history = _fit(side, [keras.callbacks.TensorBoard(folder, histogram_freq=1)])
    _assert_only_rank_0_wrote(side, folder)
    return [history["val_loss"], *model.get_weights()]


class Interrupt(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise InterruptedError


@row(STRATEGY)
def backup_and_restore(side):
    """After a restart all go on from what rank 0, which alone has the file, has kept."""
    folder = _private(side)
    try:
        _fit(side, [keras.callbacks.BackupAndRestore(folder), Interrupt()], epochs=4)
        raise AssertionError("the training was not interrupted")
    except InterruptedError:
        _assert_only_rank_0_wrote(side, folder)
    keras.utils.set_random_seed(11)  # other initial values, which must not count
    model, history = _fit(side, [keras.callbacks.BackupAndRestore(folder)], epochs=4)
    assert len(history["loss"]) == 2, history
    assert not list(folder.rglob("*.h5"))
    return [*model.get_weights(), *(history[key] for key in sorted(history))]
