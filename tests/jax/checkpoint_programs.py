"""What test_checkpoints.py runs on each worker: trainings on JAX that are cut and go on."""

import os

import keras
import numpy as np

import tf_byteps as bps
from tests.cut_trainings import Cut, CutError

ROWS = 76  # the last batch is shorter
BATCH = 8
EPOCHS = 3


def _arrays():
    x = np.random.default_rng(1).normal(size=(ROWS, 6)).astype("float32")
    return x, np.argmax(x[:, :3], axis=1)


def _generated():
    x, y = _arrays()
    order = np.random.default_rng(4)
    while True:
        chosen = order.permutation(ROWS)[:BATCH]
        yield x[chosen], y[chosen]


def _data(kind):
    """Arguments of `fit`."""
    x, y = _arrays()
    if kind == "arrays":
        return {"x": x, "y": y, "batch_size": BATCH}
    if kind == "generator":
        return {"x": _generated(), "steps_per_epoch": 10}
    import tensorflow as tf

    return {"x": tf.data.Dataset.from_tensor_slices((x, y)).shuffle(ROWS).batch(BATCH)}


def train(folder, kind="arrays", cut=None, steps_per_execution=1, seed=3):
    """Trains, with checkpoints in a folder; returns the logs and weights, or where it was cut."""
    keras.utils.set_random_seed(seed)
    data = _data(kind)
    with bps.BytePSStrategy().scope():
        layers = [keras.Input([6]), keras.layers.Dense(8), keras.layers.Dropout(0.2)]
        model = keras.Sequential([*layers, keras.layers.Dense(3, activation="softmax")])
        given = {"metrics": ["accuracy"], "steps_per_execution": steps_per_execution}
        model.compile("adam", "sparse_categorical_crossentropy", **given)
    callbacks = [bps.keras.callbacks.TrainingCheckpoint(folder, save_freq=3)]
    callbacks += [] if cut is None else [Cut(*cut)]
    try:
        history = model.fit(**data, epochs=EPOCHS, verbose=0, callbacks=callbacks).history
    except CutError:
        return {"files": sorted(os.listdir(folder))}
    return {"history": history, "weights": model.get_weights()}


def train_compressed(folder, first, last):
    """Trains with error feedback from one epoch to another, which are on files between."""
    keras.utils.set_random_seed(1)
    x = np.random.default_rng(1).normal(size=(64, 6)).astype("float32")
    with bps.BytePSStrategy(compression="onebit").scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(3)])
        model.compile(keras.optimizers.SGD(0.05), "mse")
    path = os.path.join(folder, f"{first}.weights.h5")
    if first:
        model.load_weights(path)
    residuals = bps.keras.callbacks.BackupResiduals(os.path.join(folder, "residuals"))
    residuals.on_train_end = lambda logs=None: None  # as where a crash ends it
    model.fit(
        x,
        x[:, :3],
        8,
        initial_epoch=first,
        epochs=last,
        shuffle=False,
        verbose=0,
        callbacks=[residuals],
    )
    model.save_weights(os.path.join(folder, f"{last}.weights.h5"))
    return model.get_weights()
