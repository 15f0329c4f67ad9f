"""What the workers of test_accumulation.py do.

Five steps an epoch, and an update every two or three steps: epochs end between two updates. Steps
run eagerly but in one case, which saves the time of tracing.
"""

import contextlib
import os
import shutil

import keras
import numpy as np
from keras import optimizers

import tf_byteps as bps
from tests.strategy.two_optimizers import update_layers

_ROWS, _BATCH = 57, 12  # the last batch is cut unevenly, for 2 and 3 workers
_FIT = {"batch_size": _BATCH, "shuffle": False, "verbose": 0}


class _CutError(Exception):
    """Ends a training as a crash would, on all workers."""


class _Cut(keras.callbacks.Callback):
    """Raises it after a batch of a training's epoch; both count from 0."""

    def __init__(self, epoch, batch):
        super().__init__()
        self.place, self.epoch = (epoch, batch), 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == self.place:
            raise _CutError


def _rows(count=_ROWS):
    random = np.random.default_rng(1)
    x = random.normal(size=(count, 6))
    return x, np.sin(x.sum(axis=1, keepdims=True))


def _several():
    rest = optimizers.Adam(0.02, gradient_accumulation_steps=3)
    hidden = optimizers.SGD(0.1, gradient_accumulation_steps=2)
    return optimizers.MultiOptimizer(optimizers.OptimizerMap(rest, {"hidden/.*": hidden}))


_OPTIMIZERS = {
    "adam": lambda: optimizers.Adam(0.02, gradient_accumulation_steps=2),
    "loss scale": lambda: optimizers.LossScaleOptimizer(
        optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=2), initial_scale=64.0
    ),
    "several": _several,
}


class Twice(keras.Model):
    """Updates its two layers by optimizers of its own, in one step."""

    def compile(self, own_optimizers, **options):
        super().compile(**options)
        self.own_optimizers = own_optimizers

    def train_step(self, data):
        update_layers(self, data, *self.own_optimizers)
        x, y = data
        return self.compute_metrics(x, y, self(x))


def _model(plain, optimizer="adam", eager=True):
    keras.backend.clear_session()
    keras.config.set_floatx("float64")
    keras.utils.set_random_seed(1)
    with contextlib.nullcontext() if plain else bps.BytePSStrategy().scope():
        inputs = keras.Input([6])
        hidden = keras.layers.Dense(8, "tanh", name="hidden")(inputs)
        outputs = keras.layers.Dense(1, name="last")(hidden)
        if optimizer == "two":
            model = Twice(inputs, outputs)
            mine = [optimizers.Adam(0.02, gradient_accumulation_steps=k) for k in (2, 3)]
            model.compile(mine, metrics=["mae"], run_eagerly=eager)
        else:
            model = keras.Model(inputs, outputs)
            model.compile(_OPTIMIZERS[optimizer](), "mse", run_eagerly=eager)
    return model


def _shown(model, *histories):
    losses = [loss for each in histories for values in each.history.values() for loss in values]
    inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    accumulated = getattr(inner, "_accumulated_gradients", [])
    return {
        "losses": losses,
        "weights": [weight.tolist() for weight in model.get_weights()],
        "accumulated": [variable.numpy().tolist() for variable in accumulated],
    }


def fits(optimizer="adam", eager=True, plain=False):
    """Three trainings of an epoch each."""
    model = _model(plain, optimizer, eager)
    return _shown(model, *(model.fit(*_rows(), **_FIT) for _ in range(3)))


def saved_after_an_epoch(folder, plain=False):
    """A training that goes on with a model loaded from a file."""
    model = _model(plain)
    first = model.fit(*_rows(), **_FIT)
    path = os.path.join(folder, "model.keras")
    model.save(path)
    with contextlib.nullcontext() if plain else bps.BytePSStrategy().scope():
        loaded = keras.models.load_model(path)
    loaded.run_eagerly = True
    return _shown(loaded, first, *(loaded.fit(*_rows(), **_FIT) for _ in range(2)))


def saved_after_batches(folder, plain=False):
    """The same after three batches, and then three more."""
    model = _model(plain)
    x, y = _rows()
    mine = slice(None) if plain else slice(bps.rank(), None, bps.size())
    for begin in (0, 12, 24):
        model.train_on_batch(x[begin : begin + 12][mine], y[begin : begin + 12][mine])
    path = os.path.join(folder, "model.keras")
    model.save(path)
    with contextlib.nullcontext() if plain else bps.BytePSStrategy().scope():
        loaded = keras.models.load_model(path)
    loaded.run_eagerly = True
    for begin in (0, 12, 24):
        loaded.train_on_batch(x[begin : begin + 12][mine], y[begin : begin + 12][mine])
    return _shown(loaded, loaded.fit(*_rows(), **_FIT))


def checkpointed(folder, plain=False):
    """Goes on from what `ModelCheckpoint` saved after the third batch."""
    model = _model(plain)
    path = os.path.join(folder, "checkpoint.keras")
    checkpoint = keras.callbacks.ModelCheckpoint(path, save_freq=3)
    with contextlib.suppress(_CutError):
        model.fit(*_rows(), callbacks=[checkpoint, _Cut(0, 2)], **_FIT)
    with contextlib.nullcontext() if plain else bps.BytePSStrategy().scope():
        loaded = keras.models.load_model(path)
    loaded.run_eagerly = True
    return _shown(loaded, *(loaded.fit(*_rows(), **_FIT) for _ in range(2)))


def committed(folder, plain=False):
    """Goes on from what an elastic state kept when three batches were done."""
    if plain:
        return checkpointed(folder, plain)
    model = _model(plain)
    with model.distribute_strategy.scope():
        state = bps.elastic.KerasState(model)
    commit = bps.elastic.CommitStateCallback(state, 3)
    with contextlib.suppress(_CutError):
        model.fit(*_rows(), callbacks=[commit, _Cut(0, 3)], **_FIT)
    state.restore()
    state.on_reset()
    state.sync()
    return _shown(model, *(model.fit(*_rows(), **_FIT) for _ in range(2)))


def interrupted(plain=False):
    """A training that is cut in an epoch, and another one with the same model."""
    model = _model(plain)
    with contextlib.suppress(_CutError):
        model.fit(*_rows(), callbacks=[_Cut(0, 2)], **_FIT)
    return _shown(model, model.fit(*_rows(), epochs=2, **_FIT))


def backed_up(folder, save_freq, plain=False):
    """Cut in its second epoch, unless the folder holds the backup of a job in which it was.

    A new model goes on.
    """
    backups = os.path.join(folder, f"backups {save_freq}")
    if not os.path.exists(backups):
        model = _model(plain)
        callbacks = [keras.callbacks.BackupAndRestore(backups, save_freq), _Cut(1, 2)]
        with contextlib.suppress(_CutError):
            model.fit(*_rows(), epochs=3, callbacks=callbacks, **_FIT)
        if not plain:
            bps.allgather_object(None, name="saved")
        if plain or bps.rank() == 0:
            shutil.copytree(backups, f"{backups} kept")
    model = _model(plain)
    callbacks = [keras.callbacks.BackupAndRestore(backups, save_freq)]
    return _shown(model, model.fit(*_rows(), epochs=3, callbacks=callbacks, **_FIT))


def _distributed_model(plain):
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    inputs = keras.Input([6])
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(8, "tanh")(inputs)))
    if plain:
        optimizer = optimizers.Adam(0.02, gradient_accumulation_steps=2)
    else:
        options = {"backward_passes_per_step": 2, "average_aggregated_gradients": True}
        optimizer = bps.DistributedOptimizer(optimizers.Adam(0.02), **options)
    model.compile(optimizer, "mse", run_eagerly=True)
    return model


def distributed_optimizer(folder, plain=False):
    """`DistributedOptimizer` in three trainings, the last of a model that worker 0 has saved."""
    keras.config.set_floatx("float64")
    if not plain:
        bps.init()
    rank, size = (0, 1) if plain else (bps.rank(), bps.size())
    model = _distributed_model(plain)
    rows = [each.reshape(5, 12, -1)[:, rank::size] for each in _rows(60)]
    rows = [each.reshape(-1, each.shape[-1]) for each in rows]
    path = os.path.join(folder, "distributed.keras")
    broadcast = [] if plain else [bps.keras.callbacks.BroadcastGlobalVariablesCallback(0)]
    saving = [keras.callbacks.ModelCheckpoint(path)] if rank == 0 else []
    options = {**_FIT, "batch_size": 12 // size}
    for _ in range(2):
        model.fit(*rows, callbacks=[*broadcast, *saving], **options)
    model = _distributed_model(plain)
    if rank == 0:
        keras.backend.clear_session()
        model = (keras.models if plain else bps.keras).load_model(path)
        model.run_eagerly = True
    model.fit(*rows, callbacks=broadcast, **options)
    return {**_shown(model), "losses": []}  # those of each worker's own rows
