"""Trainings that are told to end: `python -m tests.launch.leaving_programs <name> <folder>`."""

import hashlib
import json
import pathlib
import sys
import time

import keras
import numpy as np

import tf_byteps as bps
from tf_byteps.keras.callbacks import LeaveOnSignal

STEPS = 200


class Report(keras.callbacks.Callback):
    """Says when training goes on, and in the end how far it came."""

    def __init__(self, folder):
        super().__init__()
        self._folder = pathlib.Path(folder)
        self._epochs = []

    def on_epoch_begin(self, epoch, logs=None):
        self._epochs.append(epoch)

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.01)
        if batch == 3:
            print("training", flush=True)

    def on_train_end(self, logs=None):
        weights = b"".join(weight.tobytes() for weight in self.model.get_weights())
        report = {
            "epochs": self._epochs,
            "steps": int(self.model.optimizer.iterations),
            "weights": hashlib.sha256(weights).hexdigest(),
        }
        path = self._folder / f"{bps.rank()}-{self._epochs[0]}.json"
        path.write_text(json.dumps(report))


def strategy(folder):
    """Two epochs with BytePSStrategy."""
    with bps.BytePSStrategy().scope():
        model = _model()
        model.compile("adam", "mse")
    _fit(model, folder, batch_size=16, backup="backup")


def optimizer(folder):
    """The same with DistributedOptimizer; each worker has a backup of its own."""
    bps.init()
    keras.utils.set_random_seed(1)
    model = _model()
    model.compile(bps.DistributedOptimizer(keras.optimizers.Adam()), "mse", jit_compile=False)
    _fit(model, folder, batch_size=8, backup=f"backup-{bps.rank()}")


def until_requeued(folder):
    """Trains until the job is told to end; started again, for one epoch more."""
    is_again = (pathlib.Path(folder) / "0-0.json").exists()
    with bps.BytePSStrategy().scope():
        model = _model()
        model.compile("adam", "mse")
    further = [_OneEpoch()] if is_again else []
    _fit(model, folder, batch_size=16, backup="backup", epochs=1000, further=further)


class _OneEpoch(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = True


def _model():
    return keras.Sequential([keras.Input([4]), keras.layers.Dense(8), keras.layers.Dense(2)])


def _fit(model, folder, batch_size, backup, epochs=2, further=()):
    rows = np.random.default_rng(1).normal(size=(STEPS * batch_size, 4)).astype(np.float32)
    callbacks = [
        keras.callbacks.BackupAndRestore(str(pathlib.Path(folder) / backup)),
        Report(folder),
        *further,
        LeaveOnSignal(),
    ]
    arguments = {"batch_size": batch_size, "epochs": epochs, "verbose": 0}
    model.fit(rows, rows[:, :2], callbacks=callbacks, **arguments)
    print("done", flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
