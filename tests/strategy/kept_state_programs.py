"""What the workers of test_kept_state.py do: train twice and save; go on from the file elsewhere.

Before the second training, the values of other workers than the first are disturbed wherever worker
0's are to count. Steps run eagerly but in one case, which saves the time of tracing.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tf_byteps as bps
from tests.strategy.two_optimizers import update_layers

_ROWS, _BATCH = 57, 12  # the last batch is cut unevenly, for 2 and 3 workers
_PIECE, _LENGTH = 4, 3  # of a stateful RNN: rows and steps
_serializable = keras.saving.register_keras_serializable("kept_state")


@_serializable
class Counting(layers.Layer):
    """Counts steps, draws numbers that nobody uses, and has a constant."""

    def build(self, input_shape):
        kept = {"shape": [], "dtype": "int64", "trainable": False}
        self.steps = self.add_weight(initializer="zeros", name="steps", **kept)
        self.constant = self.add_weight(initializer="ones", name="constant", **kept)
        self.seeds = keras.random.SeedGenerator(3)

    def call(self, x):
        self.steps.assign_add(1)
        self.seeds.next()
        return x


@_serializable
class Queue(layers.Layer):
    """The first numbers of this worker's last rows, which stay its own."""

    def build(self, input_shape):
        self.queue = self.add_weight(shape=[4], initializer="zeros", trainable=False, name="queue")
        self.queue.byteps_kind = "own"

    def call(self, x):
        self.queue.assign(tf.concat([x[:, 0], self.queue], 0)[:4])
        return x


@_serializable
class NotReset(keras.metrics.MeanSquaredError):
    def reset_state(self):
        pass


@_serializable
class TwoOptimizers(keras.Model):
    """Its step updates the last layer by an optimizer that Keras does not know."""

    def train_step(self, data):
        return {"mine": update_layers(self, data, self.optimizer, self.second)}


@_serializable
class Noting(keras.Model):
    """Keeps the numbers of the first column of each batch, and a running mean of them."""

    def train_step(self, data):
        x = data[0]
        self.batches.append(x[:, 0].numpy().tolist())
        self.mean.assign(0.5 * self.mean + tf.reduce_mean(x[:, 0]))
        return super().train_step(data)


def _sequential(*first):
    model = keras.Sequential([keras.Input([8]), *first, layers.Dense(8, "tanh"), layers.Dense(1)])
    return model


def _functional(model_class):
    inputs = keras.Input([8])
    return model_class(inputs, layers.Dense(1)(layers.Dense(8, "tanh")(inputs)))


def _weights():
    frozen = layers.Dense(8, trainable=False)
    model = _sequential(Counting(), frozen, layers.BatchNormalization(synchronized=True))
    model.compile(keras.optimizers.AdamW(0.02, use_ema=True, ema_momentum=0.9), "mse")
    return model


def _loss_scale():
    model = _sequential()
    inner = keras.optimizers.SGD(0.1, momentum=0.9)
    scaled = keras.optimizers.LossScaleOptimizer(inner, 8.0, dynamic_growth_steps=3)
    model.compile(scaled, "mse")
    return model


def _two_optimizers():
    model = _functional(TwoOptimizers)
    model.compile(keras.optimizers.Adam(0.02))
    model.second = keras.optimizers.SGD(0.1, momentum=0.9)
    model.second.build(model.trainable_variables[2:])
    model.optimizer.build(model.trainable_variables[:2])
    return model


def _float8():
    model = _sequential()
    model.quantize("float8")
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse")
    return model


def _statistics():
    model = _sequential(layers.BatchNormalization(momentum=0.5))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def _queue():
    model = _sequential(Queue())
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.layers[0].queue.assign(tf.fill([4], 7.0 + _rank()))
    return model


def _stateful_rnn():
    inputs = keras.Input(batch_shape=[_PIECE, _LENGTH, 8])
    model = keras.Model(inputs, layers.Dense(1)(layers.SimpleRNN(2, stateful=True)(inputs)))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def _metrics():
    model = _sequential()
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae", NotReset(name="not_reset")])
    return model


def _noting():
    model = _functional(Noting)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def _prepare_noting(model):
    """Neither is in a file."""
    model.batches = []
    model.mean = tf.Variable(10.0 + _rank(), dtype="float64", trainable=False)


@dataclasses.dataclass(frozen=True)
class Case:
    build: Callable[[], keras.Model]
    own: Callable[[keras.Model], list] = lambda model: []  # what a training begins and ends with
    is_disturbed: bool = True
    is_eager: bool = True
    prepare: Callable[[keras.Model], None] = lambda model: None


CASES = {
    "weights": Case(_weights, is_eager=False),
    "loss_scale": Case(_loss_scale),
    "two_optimizers": Case(_two_optimizers),
    "float8": Case(_float8, is_eager=False),
    "statistics": Case(
        _statistics, lambda m: [m.layers[0].moving_mean, m.layers[0].moving_variance]
    ),
    "queue": Case(_queue, lambda m: [m.layers[0].queue], is_disturbed=False),
    "stateful_rnn": Case(_stateful_rnn, lambda m: list(m.layers[1].states), is_disturbed=False),
    "metrics": Case(_metrics, lambda m: m.metrics_variables),
    "noting": Case(_noting, lambda m: [m.mean], prepare=_prepare_noting),
}


def _rank():
    return 0 if tf.distribute.get_strategy().num_replicas_in_sync == 1 else bps.rank()


def _scope(plain):
    return contextlib.nullcontext() if plain else bps.BytePSStrategy().scope()


def _scope_of(model, plain):
    """Of the model's strategy: from another one a variable would not get worker 0's value."""
    return contextlib.nullcontext() if plain else model.distribute_strategy.scope()


def _begin():
    keras.backend.clear_session()
    keras.config.set_floatx("float64")
    keras.utils.set_random_seed(1)


def _numbers(variables):
    return [np.asarray(variable, "float64").tolist() for variable in variables]


def _variables(model):
    """All that a file has of a model."""
    optimizers = [model.optimizer, *([model.second] if hasattr(model, "second") else [])]
    own = [each for optimizer in optimizers for each in optimizer.variables]
    return [*model.variables, *own]


class _Ends(keras.callbacks.Callback):
    """Some of a model's variables where a training begins, and after its last batch."""

    def __init__(self, own, last):
        super().__init__()
        self.own, self.last = own, last

    def on_epoch_begin(self, epoch, logs=None):
        self.begins = _numbers(self.own(self.model))

    def on_train_batch_end(self, batch, logs=None):
        if batch == self.last:
            self.ends = _numbers(self.own(self.model))


def _fit(model, own, workers):
    x = np.random.default_rng(1).normal(size=(_ROWS, 8))
    batch = _BATCH
    if model.inputs[0].shape[0] == _PIECE:
        batch = workers * _PIECE
        x = np.random.default_rng(1).normal(size=(4 * batch, _LENGTH, 8))
    y = np.sin(x.reshape(len(x), -1).sum(axis=1, keepdims=True))
    ends = _Ends(own, -(-len(x) // batch) - 1)
    options = {"batch_size": batch, "shuffle": False, "verbose": 0}
    logs = model.fit(x, y, callbacks=[ends], **options).history
    return {"logs": logs, "begins": ends.begins, "ends": ends.ends, "after": _numbers(own(model))}


def _trainings(case, model, plain):
    """Two trainings of a model, with what they begin and end with; and all it has after them."""
    workers = 1 if plain else bps.size()
    with _scope_of(model, plain):
        case.prepare(model)
    model.run_eagerly = case.is_eager
    trainings = [_fit(model, case.own, workers)]
    if case.is_disturbed and not plain and bps.rank() > 0:
        for variable in _variables(model):
            variable.assign(variable + tf.cast(3, variable.dtype))
    trainings.append(_fit(model, case.own, workers))
    state = dict(zip((each.path for each in _variables(model)), _numbers(_variables(model))))
    batches = [list(batch) for batch in getattr(model, "batches", [])]
    return {"trainings": trainings, "state": state, "batches": batches}


def _checkpoint(model):
    return tf.train.Checkpoint(model=model, first=model.optimizer, second=model.second)


def trained(case, folder, plain=False):
    """Two trainings, and a file of what they end with."""
    _begin()
    path = os.path.join(folder, case)
    with _scope(plain):
        model = CASES[case].build()
    results = _trainings(CASES[case], model, plain)
    if case == "two_optimizers":
        _checkpoint(model).write(path)
    else:
        # Of own states a path that all save to has those of the last one to write.
        name = path if plain or bps.rank() == 0 else f"{path}_of_{bps.rank()}"
        model.save(f"{name}.keras")
    return results


def resumed(case, folder, plain=False):
    """What the file has, and two trainings that go on from it."""
    _begin()
    path = os.path.join(folder, case)
    with _scope(plain):
        if case == "two_optimizers":
            model = CASES[case].build()
            _checkpoint(model).read(path).assert_existing_objects_matched()
        else:
            model = keras.models.load_model(f"{path}.keras")
    loaded = dict(zip((each.path for each in _variables(model)), _numbers(_variables(model))))
    metrics = _numbers(model.metrics_variables)
    return {"loaded": loaded, "metrics": metrics, **_trainings(CASES[case], model, plain)}


# Error feedback.


def fits_with_residuals(epochs):
    """Weights after trainings of so many epochs each, with gradients that travel as signs."""
    keras.backend.clear_session()
    keras.config.set_floatx("float32")
    keras.utils.set_random_seed(1)
    # Residuals belong to tensors' names.
    name = f"of_{'_'.join(map(str, epochs))}"
    with bps.BytePSStrategy(compression="onebit").scope():
        model = keras.Sequential([keras.Input([8]), layers.Dense(1, name=name)])
        model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
    x = np.random.default_rng(1).normal(size=(_ROWS, 8)).astype("float32")
    for count in epochs:
        options = {"batch_size": _BATCH, "shuffle": False, "verbose": 0}
        model.fit(x, x[:, :1], epochs=count, **options)
    return [weight.tolist() for weight in model.get_weights()]


# The position in the data.


def positions(folder, plain=False):
    """The first column of batches, whose rows have the batch's number: of two trainings with epochs
    of two of five batches, and of one that goes on from what was saved within one.
    """
    _begin()
    path = os.path.join(folder, "positions.keras")
    numbers = np.repeat(np.arange(5.0), _BATCH)[:, np.newaxis] * np.ones([1, 8])
    data = tf.data.Dataset.from_tensor_slices((numbers, numbers[:, :1])).batch(_BATCH)
    checkpoint = keras.callbacks.ModelCheckpoint(path, save_freq=3)
    with _scope(plain):
        model = _noting()
        _prepare_noting(model)
    model.run_eagerly = True
    options = {"epochs": 2, "steps_per_epoch": 2, "verbose": 0}
    model.fit(data, callbacks=[checkpoint], **options)
    model.fit(data, **options)
    with _scope(plain):
        loaded = keras.models.load_model(path)
        _prepare_noting(loaded)
    loaded.run_eagerly = True
    loaded.fit(data, **options)
    return [sorted(set(batch)) for batch in [*model.batches, *loaded.batches]]
