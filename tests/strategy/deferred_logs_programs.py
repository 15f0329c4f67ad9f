"""What callbacks get of a step, and when."""

import contextlib
import io
import tempfile

import keras
import numpy as np
from keras.src import utils

import tf_byteps as bps

STEPS = 4  # of an epoch
_ROWS = np.arange(16 * STEPS, dtype=np.float32).reshape(-1, 2) % 5 / 5
_BATCH = 8


class Notes(keras.callbacks.Callback):
    """Looks at no batch that has ended, and notes what it is told all the same."""

    def __init__(self):
        super().__init__()
        self.reported = []  # of each batch that has ended: its number, and how many steps had begun

    @utils.default
    def on_train_batch_end(self, batch, logs=None):
        self.reported.append([batch, int(self.model.optimizer.iterations)])


class Looks(keras.callbacks.Callback):
    """Looks at each batch that has ended."""

    def on_train_batch_end(self, batch, logs=None):
        pass


class Fails(keras.callbacks.Callback):
    """Ends a training in the middle of its first epoch, once."""

    _has_failed = False

    @utils.default
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 2 and not self._has_failed:
            self._has_failed = True
            raise OSError("no space left")


def _model():
    keras.utils.set_random_seed(1)
    with bps.BytePSStrategy().scope():
        model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def _fit(callbacks, verbose=0, **options):
    model = _model()
    data = _ROWS, _ROWS[:, :1]
    options |= {"batch_size": _BATCH, "epochs": 2, "callbacks": callbacks, "verbose": verbose}
    model.fit(*data, **options)


def nobody_looks():
    notes = Notes()
    _fit([notes])
    return notes.reported


def somebody_looks():
    notes = Notes()
    _fit([notes, Looks()])
    return notes.reported


def saves(save_freq):
    notes = Notes()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/{{epoch}}.weights.h5"
        options = {"save_weights_only": True, "save_freq": save_freq}
        checkpoint = keras.callbacks.ModelCheckpoint(path, **options)
        backup = keras.callbacks.BackupAndRestore(f"{folder}/backup", save_freq=save_freq)
        _fit([notes, checkpoint, backup])
    return notes.reported


def bar():
    """Keras's bar, and a validation in each epoch."""
    notes, shown = Notes(), io.StringIO()
    with contextlib.redirect_stdout(shown):
        data = _ROWS[:_BATCH], _ROWS[:_BATCH, :1]
        _fit([notes], verbose=1, validation_data=data)
    return notes.reported, shown.getvalue().replace("\x08", "")


def interrupted():
    """A training after one that ended in the middle of an epoch, with one list of callbacks."""
    model, notes = _model(), Notes()
    callbacks = keras.callbacks.CallbackList([Fails(), notes], add_history=True, model=model)
    for _ in range(2):
        with contextlib.suppress(OSError):
            model.fit(_ROWS, _ROWS[:, :1], batch_size=_BATCH, verbose=0, callbacks=callbacks)
    return [batch for batch, _ in notes.reported]


def used_again():
    """One list of callbacks in two trainings, and with a model that the strategy does not know."""
    model, notes = _model(), Notes()
    callbacks = keras.callbacks.CallbackList([notes], add_history=True, model=model)
    given = list(callbacks.callbacks)
    alone = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    alone.compile("sgd", "mse")
    for each in (model, model, alone):
        callbacks.set_model(each)
        each.fit(_ROWS, _ROWS[:, :1], batch_size=_BATCH, verbose=0, callbacks=callbacks)
        assert callbacks.callbacks == given
    return [batch for batch, _ in notes.reported]
