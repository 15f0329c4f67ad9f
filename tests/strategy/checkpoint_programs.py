"""Trainings that are killed and go on from checkpoints, for test_checkpoints.py."""

import contextlib
import json
import os
import pathlib
import signal
import sys
import threading
import time

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.cut_trainings import Cut, CutError
from tf_byteps.keras import checkpoint

EPOCHS = 3
BATCH = 8
ROWS = 76  # the last batch is shorter
STEPS = 10  # of an epoch
SAVE_FREQ = 3


class _Losses(keras.callbacks.Callback):
    """Adds the logs of each epoch to a file: with all digits."""

    def __init__(self, folder):
        super().__init__()
        self._path = pathlib.Path(folder) / "losses.jsonl"

    def on_epoch_end(self, epoch, logs=None):
        if bps.rank() == 0:
            with self._path.open("a") as file:
                file.write(json.dumps([epoch, {key: repr(logs[key]) for key in sorted(logs)}]))
                file.write("\n")


class _Kill(keras.callbacks.Callback):
    """Kills this process some time after it has begun a batch: while it trains, or writes."""

    def __init__(self, batches, seconds):
        super().__init__()
        self._left, self._seconds = batches, seconds

    def on_train_batch_begin(self, batch, logs=None):
        self._left -= 1
        if self._left == 0:
            threading.Thread(target=self._die, daemon=True).start()

    def _die(self):
        time.sleep(self._seconds)
        os.kill(os.getpid(), signal.SIGKILL)


class _Release(keras.callbacks.Callback):
    """Sets an event a second after training begins; counts the batches of that."""

    def __init__(self, event):
        super().__init__()
        self._event, self.batches = event, 0

    def set_model(self, model):
        super().set_model(model)
        threading.Timer(1, self._event.set).start()

    def on_train_batch_begin(self, batch, logs=None):
        self.batches += 1


class _Stop(keras.callbacks.Callback):
    """Tells this process to end, as a batch system does."""

    def on_train_batch_begin(self, batch, logs=None):
        if batch == 4 and bps.rank() == 1:
            os.kill(os.getpid(), signal.SIGTERM)


def _arrays():
    generator = np.random.default_rng(1)
    x = generator.normal(size=(ROWS, 6)).astype(np.float32)
    return x, np.argmax(x[:, :3], axis=1).astype(np.int32)


def _data(kind):
    """Arguments of `fit`."""
    x, y = _arrays()
    if kind == "arrays":
        return {"x": x, "y": y, "batch_size": BATCH}
    seed = 5 if kind == "seeded" else None
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(ROWS, seed)
    if kind == "repeated":  # epochs of another length than the data
        return {"x": dataset.repeat().batch(BATCH), "steps_per_epoch": STEPS}
    if kind == "of unknown length":
        dataset = dataset.filter(lambda row, label: label >= 0)
    if kind == "random":
        dataset = dataset.map(lambda row, label: (row + tf.random.normal([6], stddev=0.1), label))
    return {"x": dataset.batch(BATCH)}


def _model(units):
    layers = [
        keras.Input([6]),
        keras.layers.Dense(units, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(3, activation="softmax"),
    ]
    model = keras.Sequential(layers)
    optimizer = keras.optimizers.Adam(0.01)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def train(
    folder, kind="dataset", kill=None, cut=None, leaves=False, units=16, epochs=EPOCHS, **options
):
    """Trains in a folder, from the checkpoint that is there.

    Args:
        folder: has the checkpoints, and `losses.jsonl`.
        kind: of data.
        kill: a triple of a rank, or -1 for all, a number of batches and seconds.
        cut: an epoch and a batch that fail.
        leaves: whether worker 1 is told to end.
        units: of the model.
        epochs: how many.
        **options: of `TrainingCheckpoint`.
    """
    model = _new_model(units)
    callbacks = []
    if kill is not None and kill[0] in (-1, bps.rank()):
        callbacks.append(_Kill(*kill[1:]))
    if cut is not None:
        callbacks.append(Cut(*cut))
    if leaves:
        callbacks += [_Stop(), bps.keras.callbacks.LeaveOnSignal(exit_process=False)]
    return _fit(model, folder, kind, epochs, callbacks, **options)


def _new_model(units=16):
    keras.utils.set_random_seed(7)
    with bps.BytePSStrategy().scope():
        return _model(units)


def _fit(model, folder, kind, epochs, callbacks, **options):
    """Trains with a checkpoint and these callbacks behind it, the data in the same order."""
    keras.utils.set_random_seed(7)  # whatever has been drawn before
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    directory = os.path.join(folder, "checkpoints")
    options = {"save_freq": SAVE_FREQ, "max_to_keep": 2, **options}
    saving = [bps.keras.callbacks.TrainingCheckpoint(directory, **options), _Losses(folder)]
    history = model.fit(**_data(kind), epochs=epochs, verbose=0, callbacks=saving + callbacks)
    digest = [float(np.sum(np.abs(weight))) for weight in model.get_weights()]
    steps = int(model.optimizer.iterations)
    return {"epochs": history.epoch, "weights": digest, "steps": steps}


def train_elastic(folder, kills):
    """Trains as `train` does, in an elastic job; bpslaunch starts others for those that are killed.

    Args:
        folder: see `train`. Rank 0 writes `result.json` there.
        kills: by the number that bpslaunch gives a worker: a pair of a number of batches, of all
            its trainings together, and seconds.
    """
    model = _new_model()
    state = bps.elastic.KerasState(model)
    killing = [_Kill(*kills[number]) for number in [os.environ["BYTEPS_MEMBER"]] if number in kills]

    @bps.elastic.run
    def go_on(_):
        return _fit(model, folder, "seeded", EPOCHS, killing)

    result = go_on(state)
    if bps.rank() == 0:
        path = pathlib.Path(folder) / "result.json"
        path.write_text(json.dumps({**result, "size": bps.size()}))


def cut_and_go_on(folder, kind, cuts, **options):
    """`train`, in a new training after each cut: an epoch and a batch."""
    for cut in cuts:
        try:
            train(folder, kind, cut=cut, **options)
        except CutError:
            continue
        raise AssertionError(f"was not cut at {cut}")
    return train(folder, kind, **options)


def cut_while_writing(folder):
    """Cuts a training at its first checkpoint, before that is written, and goes on from it."""
    writes = threading.Event()
    checkpoint._thread().submit(writes.wait, 60)
    with contextlib.suppress(CutError):
        train(folder, cut=[0, SAVE_FREQ])
    releasing = _Release(writes)
    result = _fit(_new_model(), folder, "dataset", EPOCHS, [releasing])
    return {**result, "batches": releasing.batches}


def last_losses(folder):
    """By epoch: what the last training that came to its end has logged."""
    path = pathlib.Path(folder) / "losses.jsonl"
    return dict(map(json.loads, path.read_text().splitlines())) if path.exists() else {}


def error_of(folder, of_worker_0=SAVE_FREQ, **arguments):
    """What a training ends with."""
    try:
        train(folder, save_freq=of_worker_0 if bps.rank() == 0 else SAVE_FREQ, **arguments)
    except (ValueError, tf.errors.OpError) as error:
        return str(error)
    return None


if __name__ == "__main__":
    train_elastic(sys.argv[1], json.loads(sys.argv[2]))
