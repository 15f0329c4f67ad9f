"""Programs with their own training steps and losses."""

import keras
import tensorflow as tf
from keras import layers, ops

from tests.foreign.table import BATCH, ROWS, SUM, integers, numbers, program, shown


def made_up(rows=ROWS):
    x = numbers(rows, 4)
    return x, x[:, :1] * x[:, 1:2] + numbers(rows, 1, seed=1) / 4


def small(model_class=keras.Model):
    inputs = keras.Input([4])
    return model_class(inputs, layers.Dense(1)(layers.Dense(5, "tanh")(inputs)))


def fit(scope, model_class=keras.Model, *, rows=ROWS, optimizer=None, epochs=2, **options):
    keras.utils.set_random_seed(1)
    x, y = made_up(rows)
    fit_options = {"batch_size": BATCH, "epochs": epochs, "verbose": 0, **options.pop("fit", {})}
    with scope():
        model = small(model_class)
        model.compile(optimizer or keras.optimizers.SGD(0.1), **options)
    return shown(model, model.fit(x, y, **fit_options))


# Losses given to `compile`.


@program("`compile(loss=f)`, f returns `tf.reduce_mean(...)`")
def loss_of_a_scalar(scope):
    return fit(scope, loss=lambda y, made: tf.reduce_mean(tf.abs(y - made)), metrics=["mse"])


@program("`compile(loss=f)`, f returns one number for each row")
def loss_of_a_vector(scope):
    return fit(scope, loss=lambda y, made: tf.reduce_mean(tf.abs(y - made), axis=-1))


@program("`compile(loss=f)`, f returns a scalar, with sample weights")
def loss_of_a_scalar_weighted(scope):
    x, y = made_up()
    more = {"sample_weight": abs(numbers(ROWS, seed=5)), "validation_data": (x[:17], y[:17])}
    return fit(scope, loss=lambda y, made: tf.reduce_mean((y - made) ** 2), fit=more)


@program("`compile(loss=f)`, f returns `tf.reduce_sum(...)`", differs=SUM)
def loss_of_a_sum(scope):
    options = {"optimizer": keras.optimizers.SGD(0.01)}
    return fit(scope, loss=lambda y, made: tf.reduce_sum((y - made) ** 2), **options)


@program("a loss object with `reduction='sum'`")
def loss_object_of_a_sum(scope):
    loss = keras.losses.MeanSquaredError(reduction="sum")
    return fit(scope, optimizer=keras.optimizers.SGD(0.01), loss=loss)


class Quantiles(keras.losses.Loss):
    def call(self, y_true, y_pred):
        error = y_true - y_pred
        return ops.mean(ops.maximum(0.9 * error, -0.1 * error), axis=-1)


@program("a loss class of one's own, with clipping by the global norm")
def loss_class(scope):
    optimizer = keras.optimizers.Adam(0.01, global_clipnorm=0.1)
    return fit(scope, optimizer=optimizer, loss=Quantiles())


@program("gradient accumulation, clipping by norm, a scalar loss function")
def accumulating(scope):
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2, clipnorm=0.3)
    return fit(scope, optimizer=optimizer, loss=lambda y, made: tf.reduce_mean((y - made) ** 2))


# Own steps.


class OwnStep(keras.Model):
    def loss_of(self, x, y, weights):
        raise NotImplementedError

    def train_step(self, data):
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = self.loss_of(x, y, weights)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"step_loss": loss}


class MeanStep(OwnStep):
    def loss_of(self, x, y, weights):
        return tf.reduce_mean(tf.square(self(x, training=True) - y))


class FunctionStep(OwnStep):
    def loss_of(self, x, y, weights):
        return ops.mean(keras.losses.mean_absolute_error(y, self(x, training=True)))


class ObjectStep(OwnStep):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.loss_fn = keras.losses.MeanSquaredError()

    def loss_of(self, x, y, weights):
        return self.loss_fn(y, self(x, training=True), sample_weight=weights)


class ComputeLossStep(OwnStep):
    def loss_of(self, x, y, weights):
        return self.compute_loss(x, y, self(x, training=True), weights)


class RegularizedStep(ObjectStep):
    def loss_of(self, x, y, weights):
        loss = self.loss_fn(y, self(x, training=True))
        return loss + 0.01 * tf.add_n([tf.nn.l2_loss(v) for v in self.trainable_variables])


def _own_step(name, what, **options):
    return program(f"own `train_step` {what}", name=f"own_step_{name}", **options)


@_own_step("regularized", "with a loss object, and a penalty", model_class=RegularizedStep)
@_own_step("compute_loss", "with `self.compute_loss`", model_class=ComputeLossStep)
@_own_step("object", "with an object of `keras.losses`", model_class=ObjectStep, quick=True)
@_own_step("function", "with a function of `keras.losses`", model_class=FunctionStep)
@_own_step("mean", "with `tf.reduce_mean`", model_class=MeanStep)
def _train_own_step(scope, model_class):
    return fit(scope, model_class, loss="mse" if model_class is ComputeLossStep else None)


class TrackedStep(ObjectStep):
    """Metrics of its own in `train_step` and `test_step`, with sample weights."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.mae_metric = keras.metrics.MeanAbsoluteError(name="mae")

    @property
    def metrics(self):
        return [self.loss_tracker, self.mae_metric]

    def _track(self, data, loss):
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        self.loss_tracker.update_state(loss)
        self.mae_metric.update_state(y, self(x), sample_weight=weights)
        return {metric.name: metric.result() for metric in self.metrics}

    def train_step(self, data):
        return self._track(data, super().train_step(data)["step_loss"])

    def test_step(self, data):
        return self._track(data, self.loss_of(*keras.utils.unpack_x_y_sample_weight(data)))


@program("own `train_step` and `test_step` with metrics and sample weights")
def tracked_step(scope):
    x, y = made_up()
    more = {"sample_weight": abs(numbers(ROWS, seed=5)), "validation_data": (x[:17], y[:17])}
    return fit(scope, TrackedStep, fit=more)


class OwnComputeLoss(keras.Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.loss_tracker = keras.metrics.Mean(name="loss")

    def compute_loss(self, x, y, y_pred, sample_weight, training=True):
        loss = ops.mean((y_pred - y) ** 2)
        loss += ops.sum(self.losses)
        self.loss_tracker.update_state(loss)
        return loss

    def reset_metrics(self):
        self.loss_tracker.reset_state()

    @property
    def metrics(self):
        return [self.loss_tracker]


@program("own `compute_loss` with a metric in it, and `add_loss` of a mean", quick=True)
def own_compute_loss(scope):
    class Penalized(layers.Dense):
        def call(self, x):
            self.add_loss(0.1 * ops.mean(ops.abs(x)))
            return super().call(x)

    keras.utils.set_random_seed(2)
    x, y = made_up()
    with scope():
        inputs = keras.Input([4])
        model = OwnComputeLoss(inputs, Penalized(1)(layers.Dense(5, "tanh")(inputs)))
        model.compile(keras.optimizers.SGD(0.1))
    return shown(model, model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0))


class Endpoint(layers.Layer):
    """Computes the loss and a metric itself; the model is compiled without a loss."""

    def __init__(self):
        super().__init__()
        self.loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)
        self.accuracy = keras.metrics.BinaryAccuracy(name="accuracy")

    def call(self, targets, logits):
        self.add_loss(self.loss_fn(targets, logits))
        self.accuracy.update_state(targets, logits)
        return ops.sigmoid(logits)


@program("a layer that computes the loss with a loss object, and `add_loss`")
def endpoint_layer(scope):
    keras.utils.set_random_seed(3)
    x, _ = made_up()
    with scope():
        inputs, targets = keras.Input([4], name="inputs"), keras.Input([1], name="targets")
        model = keras.Model([inputs, targets], Endpoint()(targets, layers.Dense(1)(inputs)))
        model.compile(keras.optimizers.SGD(0.1))
    y = integers(2, ROWS, 1).astype(x.dtype)
    return shown(model, model.fit([x, y], batch_size=BATCH, epochs=2, verbose=0))


def _added_loss(scope, total):
    class Penalized(layers.Layer):
        def call(self, x):
            self.add_loss(0.01 * total(ops.square(x)))
            return x

    keras.utils.set_random_seed(4)
    x, y = made_up()
    with scope():
        inputs = keras.Input([4])
        hidden = Penalized()(layers.Dense(5, "tanh", kernel_regularizer="l2")(inputs))
        model = keras.Model(inputs, layers.Dense(1)(hidden))
        model.compile(keras.optimizers.SGD(0.1), "mse")
    return shown(model, model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0))


@program("`add_loss` of a mean over rows, and a regularizer")
def added_mean(scope):
    return _added_loss(scope, ops.mean)


@program("`add_loss` of a sum over rows", differs=SUM)
def added_sum(scope):
    return _added_loss(scope, ops.sum)


class Accumulating(OwnStep):
    """Accumulates in variables of its own and applies every second step."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen = tf.Variable(0, trainable=False)
        self.sums = [
            tf.Variable(tf.zeros_like(v), trainable=False) for v in self.trainable_variables
        ]

    def train_step(self, data):
        x, y = data
        self.seen.assign_add(1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        for total, gradient in zip(self.sums, tape.gradient(loss, self.trainable_variables)):
            total.assign_add(gradient)
        tf.cond(tf.equal(self.seen, 2), self._apply, lambda: None)
        return {"step_loss": loss}

    def _apply(self):
        self.optimizer.apply_gradients(zip(self.sums, self.trainable_variables))
        self.seen.assign(0)
        for total in self.sums:
            total.assign(tf.zeros_like(total))


@program("gradients accumulated by hand in `train_step`")
def accumulating_by_hand(scope):
    return fit(scope, Accumulating)
