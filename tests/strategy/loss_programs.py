"""Trainings with losses as programs for one process, or for tf.distribute, write them."""

import contextlib

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps

# With 3 workers the last batch leaves one row for worker 0 and none for the others.
ROWS = 25
BATCH = 6
DTYPE = "float64"


def _mean(model, x, y, outputs):
    return tf.reduce_mean((outputs - y) ** 2)


def _function(model, x, y, outputs):
    return tf.reduce_mean(keras.losses.mean_squared_error(y, outputs))


def _object(model, x, y, outputs):
    return keras.losses.MeanSquaredError()(y, outputs)


def _compute_loss(model, x, y, outputs):
    return model.compute_loss(x, y, outputs)


def _average_loss(model, x, y, outputs):
    values = keras.losses.MeanSquaredError(reduction="none")(y, outputs)
    return tf.nn.compute_average_loss(values)


def _average_loss_of_global_batch(model, x, y, outputs):
    values = keras.losses.MeanSquaredError(reduction="none")(y, outputs)
    return tf.nn.compute_average_loss(values, global_batch_size=BATCH)


def _divided(model, x, y, outputs):
    context = tf.distribute.get_replica_context()
    return tf.reduce_mean((outputs - y) ** 2) / context.num_replicas_in_sync


def _scaled_after_keras(model, x, y, outputs):
    penalty = tf.nn.l2_loss(model.layers[0].kernel)
    return model.compute_loss(x, y, outputs) + tf.nn.scale_regularization_loss(0.1 * penalty)


def _rows(model, x, y, outputs):
    return keras.losses.mean_squared_error(y, outputs)


def _gradient_penalty(model, x, y, outputs):
    with tf.GradientTape() as tape:
        tape.watch(x)
        values = model(x, training=True)
    slopes = tf.norm(tape.gradient(values, x), axis=1)
    return tf.reduce_mean((outputs - y) ** 2) + tf.reduce_mean((slopes - 1.0) ** 2)


STEPS = {
    "rows": _rows,
    "gradient penalty": _gradient_penalty,
    "mean": _mean,
    "function": _function,
    "object": _object,
    "compute_loss": _compute_loss,
    "compute_average_loss": _average_loss,
    "compute_average_loss, global_batch_size": _average_loss_of_global_batch,
    "divided by num_replicas_in_sync": _divided,
    "scaled after compute_loss": _scaled_after_keras,
}


class OwnStep(keras.Sequential):
    """Keras's guide, with a loss of one of `STEPS`."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = STEPS[self.loss_of_step](self, x, y, self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.seen.update_state(loss)
        return {"seen": self.seen.result()}


class MixedStep(keras.Sequential):
    """Two updates, one with a loss that is scaled and one with a loss that is not."""

    def train_step(self, data):
        x, y = data
        for loss in (_mean, _divided):
            with tf.GradientTape() as tape:
                value = loss(self, x, y, self(x, training=True))
            gradients = tape.gradient(value, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {}


def _scalar(y, outputs):
    return tf.reduce_mean((outputs - y) ** 2)


def _average(y, outputs):
    return tf.nn.compute_average_loss(tf.reduce_mean((outputs - y) ** 2, axis=-1))


LOSSES = {
    "mse": lambda: "mse",
    "scalar": lambda: _scalar,
    "average": lambda: _average,
    "sum": lambda: keras.losses.MeanSquaredError(reduction="sum"),
    "weighted": lambda: keras.losses.MeanSquaredError(reduction="mean_with_sample_weight"),
}


def _data(masked):
    random = np.random.default_rng(0)
    if masked:
        return random.integers(0, 4, size=(ROWS, 5)), random.normal(size=(ROWS, 5, 1))
    return random.normal(size=(ROWS, 5)), random.normal(size=(ROWS, 1))


def _layers(masked, normalized):
    if masked:
        return [
            keras.Input([5], dtype="int64"),
            keras.layers.Embedding(4, 3, mask_zero=True),
            keras.layers.Dense(1),
        ]
    # Of a row of zeros it makes a gradient of NaN.
    first = [keras.layers.Lambda(lambda x: x / tf.norm(x, axis=1, keepdims=True))] * normalized
    hidden = keras.layers.Dense(4, "tanh", kernel_regularizer=keras.regularizers.L2(0.01))
    return [keras.Input([5]), *first, hidden, keras.layers.Dense(1)]


def _optimizer(accumulation_steps, loss_scale):
    optimizer = keras.optimizers.SGD(
        0.05, momentum=0.9, gradient_accumulation_steps=accumulation_steps
    )
    return keras.optimizers.LossScaleOptimizer(optimizer) if loss_scale else optimizer


def train(
    plain=False,
    step=None,
    loss="mse",
    masked=False,
    normalized=False,
    sample_weights=False,
    accumulation_steps=None,
    loss_scale=False,
    **compile_arguments,
):
    """Trains for two epochs.

    Returns:
        A dictionary: the logs of the epochs, the evaluation and the weights.
    """
    keras.config.set_floatx(DTYPE)
    keras.config.set_dtype_policy(DTYPE)
    keras.utils.set_random_seed(1)
    x, y = _data(masked)
    options = {"batch_size": BATCH, "verbose": 0}
    if sample_weights:
        options["sample_weight"] = np.linspace(0.0, 2.0, ROWS)
    with contextlib.nullcontext() if plain else bps.BytePSStrategy().scope():
        model = (OwnStep if step else keras.Sequential)(_layers(masked, normalized))
        optimizer = _optimizer(accumulation_steps, loss_scale)
        model.compile(optimizer, LOSSES[loss](), **compile_arguments)
        if step:
            model.loss_of_step = step
            model.seen = keras.metrics.Mean(name="seen")
    history = model.fit(x, y, epochs=2, shuffle=False, **options).history
    result = {f"logs: {name}": values for name, values in history.items()}
    result["evaluation"] = model.evaluate(x, y, **options)
    for index, weights in enumerate(model.get_weights()):
        result[f"weights {index}"] = weights
    if loss_scale:
        result["loss scale"] = np.array(model.optimizer.dynamic_scale)
    return {name: np.asarray(value) for name, value in result.items()}


def mixed_step():
    """Trains with a step that scales one of two losses."""
    keras.config.set_floatx(DTYPE)
    with bps.BytePSStrategy().scope():
        model = MixedStep(_layers(masked=False, normalized=False))
        model.compile("sgd")
    model.fit(*_data(masked=False), batch_size=BATCH, verbose=0)
