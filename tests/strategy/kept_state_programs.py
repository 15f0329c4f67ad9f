"""What the workers of test_kept_state.py do: train twice, save, and go on from the file."""

import contextlib
import os

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps

_ROWS, _BATCH = 57, 12  # the last batch is cut unevenly, for 2 and 3 workers
_FIT = {"batch_size": _BATCH, "shuffle": False, "verbose": 0}


@keras.saving.register_keras_serializable("kept_state")
class Counting(keras.layers.Layer):
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


@keras.saving.register_keras_serializable("kept_state")
class Queue(keras.layers.Layer):
    """The first numbers of this worker's last rows, which stay its own."""

    def build(self, input_shape):
        self.queue = self.add_weight(shape=[4], initializer="zeros", trainable=False, name="queue")
        self.queue.byteps_kind = "own"

    def call(self, x):
        self.queue.assign(tf.concat([x[:, 0], self.queue], 0)[:4])
        return x


class TwoOptimizers(keras.Model):
    """Its step updates the last layer by an optimizer that Keras does not know."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        variables = self.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply(gradients[:2], variables[:2])
        self.second.apply(gradients[2:], variables[2:])
        return {"mine": loss}


def _scope(plain):
    return contextlib.nullcontext() if plain else bps.BytePSStrategy().scope()


def _rows():
    x = np.random.default_rng(1).normal(size=(_ROWS, 8))
    return x, np.sin(x.sum(axis=1, keepdims=True))


def _layers(*first):
    hidden = [keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)]
    return keras.Sequential([keras.Input([8]), *first, *hidden])


def _slots():
    model = _layers(Counting())
    schedule = keras.optimizers.schedules.ExponentialDecay(0.02, 3, 0.9)
    model.compile(keras.optimizers.AdamW(schedule, use_ema=True), "mse", metrics=["mae"])
    return model


def _loss_scale():
    model = _layers(Counting())
    inner = keras.optimizers.SGD(0.1, momentum=0.9)
    scaled = keras.optimizers.LossScaleOptimizer(inner, 8.0, dynamic_growth_steps=3)
    model.compile(scaled, "mse", metrics=["mae"])
    return model


def _float8():
    model = _layers()
    model.quantize("float8")
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse", metrics=["mae"])
    return model


def _own():
    model = _layers(Queue())
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    return model


MODELS = {"slots": _slots, "loss_scale": _loss_scale, "float8": _float8, "own": _own}


def _state(model):
    """Everything that a file has of a model."""
    variables = {each.path: each for each in [*model.variables, *model.optimizer.variables]}
    return {path: np.asarray(each, "float64").tolist() for path, each in variables.items()}


def _make(build, plain):
    keras.backend.clear_session()
    keras.config.set_floatx("float64")
    keras.utils.set_random_seed(1)
    with _scope(plain):
        return build()


def _is_first(path, plain):
    """Whether nobody has kept this file. Alike on all workers."""
    is_kept = os.path.exists(path)
    if not plain:
        bps.init()
        is_kept = bps.broadcast_object(is_kept, 0)
    return not is_kept


def kept(case, folder, plain=False):
    """Two trainings and a file, unless there is one; then another training of what it has."""
    path = os.path.join(folder, f"{case}.keras")
    results = {}
    if _is_first(path, plain):
        model = _make(MODELS[case], plain)
        losses = [model.fit(*_rows(), **_FIT).history["loss"] for _ in range(2)]
        results = {"before": _state(model), "losses before": losses}
        model.save(path)
        if not plain:
            bps.allgather_object(None, name="saved")
    keras.backend.clear_session()
    with _scope(plain):
        model = keras.models.load_model(path)
    metric = [sum(map(float, variable.numpy().ravel())) for variable in model.metrics_variables]
    history = model.fit(*_rows(), **_FIT).history
    return {**results, "metrics": metric, "losses": history["loss"], "after": _state(model)}


def checkpointed(folder, plain=False):
    """The same with `tf.train.Checkpoint`, of a model with two optimizers."""
    path = os.path.join(folder, "checkpoint")
    first = _is_first(f"{path}-1.index", plain)

    def build():
        inputs = keras.Input([8])
        hidden = keras.layers.Dense(8, "tanh")(inputs)
        model = TwoOptimizers(inputs, keras.layers.Dense(1)(hidden))
        model.compile(keras.optimizers.Adam(0.02))
        model.second = keras.optimizers.SGD(0.1, momentum=0.9)
        model.second.build(model.trainable_variables[2:])
        model.optimizer.build(model.trainable_variables[:2])
        return model

    def checkpoint_of(model):
        return tf.train.Checkpoint(model=model, first=model.optimizer, second=model.second)

    if first:
        model = _make(build, plain)
        for _ in range(2):
            model.fit(*_rows(), **_FIT)
        checkpoint_of(model).save(path)
        if not plain:
            bps.allgather_object(None, name="saved")
    model = _make(build, plain)
    checkpoint_of(model).restore(f"{path}-1").assert_existing_objects_matched()
    model.fit(*_rows(), **_FIT)
    second = {each.path: each.numpy().tolist() for each in model.second.variables}
    return {"after": {**_state(model), **second}}
