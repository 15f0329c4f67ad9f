"""What the workers of test_weights.py do."""

import contextlib

import keras
import numpy as np
import tensorflow as tf
from state_programs import _rows, _warnings

import tf_byteps as bps
from tests import freed as freed_weights

# Random numbers of a step.


class Fakes(keras.Model):
    """Draws noise as keras.io's GANs do, and with what else draws numbers in a step."""

    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(1337)
        self.dropout = keras.layers.Dropout(0.5, seed=3)
        self.dense = keras.layers.Dense(4)
        self.drawn = []

    def call(self, x, training=False):
        return self.dense(self.dropout(x, training=training))

    def train_step(self, data):
        rows = tf.shape(data[0])[0]

        def record(*values):
            self.drawn.append([value.tolist() for value in values])
            return np.float32(0.0)

        drawn = [
            keras.random.normal([rows, 2], seed=self.seeds),
            keras.random.normal([rows, 2]),
            self.dropout(tf.ones([rows, 16]), training=True),
            tf.random.normal([rows, 2]),
            keras.random.normal([rows, 2], seed=7),
        ]
        self(data[0])
        return {"loss": tf.numpy_function(record, drawn, tf.float32)}


def noise(plain=False):
    """What two steps draw, for each way to do it; the generators' states; a new layer's kernel."""
    keras.utils.clear_session()  # else Keras 3.12 goes on with the generator of a run before
    keras.utils.set_random_seed(5)
    with contextlib.nullcontext() if plain else bps.BytePSStrategy().scope():
        model = Fakes()
        model.compile("sgd", "mse")
    x = _rows(8)[0]
    model.fit(x, x, batch_size=4, shuffle=False, verbose=0)
    return {
        "drawn": list(zip(*model.drawn, strict=True)),
        "states": [
            model.seeds.state.numpy().tolist(),
            model.dropout.seed_generator.state.numpy().tolist(),
        ],
        "kernel": model.dense.kernel.numpy().tolist(),
    }


# Weights that drift apart.


def _model(strategy, optimizer=None):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.Input([4]), keras.layers.Dense(2), keras.layers.Dense(1)])
        model.compile(optimizer or keras.optimizers.Adam(0.1), "mse")
    return model


def _fit(model, **options):
    model.fit(*_rows(24), batch_size=6, shuffle=False, verbose=0, **{"epochs": 2, **options})


def _kernels(model):
    return [layer.kernel.numpy().tolist() for layer in model.layers]


def equal():
    """Everything is as it should be, also half-way through accumulation: nothing is said."""
    strategy = bps.BytePSStrategy()
    accumulating = keras.optimizers.SGD(0.1, gradient_accumulation_steps=3)
    return _warnings(lambda: [_fit(_model(strategy, each)) for each in (None, accumulating)])


class FromBatchLogs(keras.callbacks.Callback):
    """A learning rate that follows the logs of this worker's own batches."""

    def on_train_batch_end(self, batch, logs=None):
        self.model.optimizer.learning_rate = 0.1 * logs["loss"]


class AssignOnOne(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if bps.rank() == 1 and epoch == 1:
            self.model.layers[1].bias.assign([0.5])


def drifting(callback):
    model = _model(bps.BytePSStrategy())
    return _warnings(lambda: _fit(model, callbacks=[globals()[callback]()]))


def error_of_drift():
    with _setting("error"):
        drifting("AssignOnOne")


def drift_unseen():
    with _setting("off"):
        return drifting("AssignOnOne")


@contextlib.contextmanager
def _setting(value):
    """Another BYTEPS_CHECK_WEIGHTS in the same process."""
    before = bps.runtime.config().check_weights
    object.__setattr__(bps.runtime.config(), "check_weights", value)
    try:
        yield
    finally:
        object.__setattr__(bps.runtime.config(), "check_weights", before)


def after_shutdown():
    """What Keras does when the job has been left, and the strategy is still there."""
    strategy = bps.BytePSStrategy()
    bps.shutdown()
    model = keras.Sequential([keras.Input([4]), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    _fit(model)
    del strategy
    return keras.random.normal([2], seed=keras.random.SeedGenerator(1)).shape == (2,)


# float8.


def float8(distributed=False):
    """Scales and histories after training with rows of other sizes on each worker."""
    keras.utils.set_random_seed(1)
    scope = contextlib.nullcontext() if distributed else bps.BytePSStrategy().scope()
    with scope:
        model = keras.Sequential([keras.Input([16]), keras.layers.Dense(16, name="dense")])
        model.quantize("float8")
        optimizer = keras.optimizers.SGD(0.01)
        if distributed:
            optimizer = bps.DistributedOptimizer(optimizer)
        model.compile(optimizer, "mse")
    random = np.random.RandomState(0)
    x = random.normal(size=(25, 16)).astype("float32") * np.arange(1, 26)[:, np.newaxis]
    if distributed:
        x = x[:24].reshape(4, 2, 3, 16)[:, bps.rank()].reshape(-1, 16)
    batch = 3 if distributed else 6
    model.fit(x, x, batch_size=batch, shuffle=False, epochs=2, verbose=0)
    layer = model.get_layer("dense")
    return {
        variable.name: variable.numpy().tolist()
        for variable in layer.variables
        if variable.overwrite_with_gradient
    }


def freed():
    """Weights that are there when their model is not, after training with exchanges in a step."""

    def make():
        layers = [keras.layers.Dense(16), keras.layers.BatchNormalization(synchronized=True)]
        model = keras.Sequential([keras.Input([16]), *layers])
        model.compile(keras.optimizers.Adam(), "mse")
        x = np.ones([12, 16])
        model.fit(x, x, batch_size=6, verbose=0)
        return model

    with bps.BytePSStrategy().scope():
        return freed_weights.weights_after(make)


# DistributedOptimizer.


def forgotten_broadcast(broadcasts=False):
    """Each worker makes weights of its own, and trains with or without a broadcast."""
    bps.init()
    keras.utils.set_random_seed(1 + bps.rank())
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    model.compile(bps.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    callbacks = [bps.keras.callbacks.BroadcastGlobalVariablesCallback(0)] if broadcasts else []
    return _warnings(
        lambda: model.fit(*_rows(12), batch_size=6, callbacks=callbacks, epochs=2, verbose=0)
    )
