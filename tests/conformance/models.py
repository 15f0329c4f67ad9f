"""Rows about layers and kinds of models."""

import keras
import numpy as np
import tensorflow as tf

from tests.conformance.sides import (
    BATCH,
    STEPS,
    STRATEGY,
    WORKERS,
    classes,
    compiled,
    numbers,
    row,
    share,
)


def _embedding(side, optimizer, **wrap_options):
    keras.utils.set_random_seed(3)

    def build():
        layers = [keras.layers.Embedding(9, 3), keras.layers.Flatten(), keras.layers.Dense(1)]
        return keras.Sequential([keras.Input([4], dtype="int32"), *layers])

    model = compiled(side, optimizer, build=build, wrap_options=wrap_options)
    # Few different indices: duplicates within a worker and between workers.
    side.fit(model, classes(5, 4), numbers(1, seed=1), epochs=2)
    return model.get_weights()


def _sgd():
    return keras.optimizers.SGD(0.1, momentum=0.5)


class MergingAdam(keras.optimizers.Adam):
    """Keras's Adam squares rows of one index before it adds them; this one adds them first."""

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(tf.convert_to_tensor(gradient), variable, learning_rate)


def _adam_for_slices(side):
    return MergingAdam(0.05) if side.is_single else keras.optimizers.Adam(0.05)


@row()
def embedding_sgd(side):
    return _embedding(side, _sgd)


@row()
def embedding_sgd_as_dense(side):
    return _embedding(side, _sgd, sparse_as_dense=True)


@row()
def embedding_adam(side):
    return _embedding(side, lambda: _adam_for_slices(side))


@row()
def embedding_adam_as_dense(side):
    return _embedding(side, lambda: _adam_for_slices(side), sparse_as_dense=True)


@row(STRATEGY)
def embedding_adam_not_merged(side):
    """Rows of one index are squared one by one, as in Keras."""
    options = {} if side.is_single else {"merge_repeated_rows": False}
    return _embedding(side, lambda: keras.optimizers.Adam(0.05), **options)


@row()
def embedding_adam_unmerged(side):
    """Plain Keras, which squares each of the rows that belong to one index."""
    adam = lambda: keras.optimizers.Adam(0.05)  # noqa: E731
    options = {} if side.is_single else {"merge_repeated_rows": False}
    return _embedding(side, adam, **options)


@row()
def embedding_accumulation(side):
    return _embedding(side, lambda: keras.optimizers.Adam(0.05, gradient_accumulation_steps=2))


def _two_inputs():
    first, second = keras.Input([3], name="first"), keras.Input([2], name="second")
    joined = keras.layers.Concatenate()([first, second])
    outputs = {
        "a": keras.layers.Dense(1, name="a")(joined),
        "b": keras.layers.Dense(4, activation="softmax", name="b")(joined),
    }
    return keras.Model({"first": first, "second": second}, outputs)


@row()
def several_inputs_and_outputs(side):
    losses = {"a": "mse", "b": "sparse_categorical_crossentropy"}
    options = {"loss_weights": {"a": 0.3, "b": 1.0}}
    model = compiled(side, lambda: keras.optimizers.Adam(0.05), losses, _two_inputs, **options)
    x = {"first": numbers(3), "second": numbers(2, seed=2)}
    side.fit(model, x, {"a": numbers(1, seed=1), "b": classes(4)})
    return model.get_weights()


@row()
def class_and_sample_weights(side):
    def build():
        return keras.Sequential([keras.Input([5]), keras.layers.Dense(3, activation="softmax")])

    loss = "sparse_categorical_crossentropy"
    model = compiled(side, lambda: keras.optimizers.SGD(0.1), loss, build)
    x, y = numbers(5), classes(3)
    side.fit(model, x, y, class_weight={0: 1.0, 1: 0.2, 2: 3.0})
    weights = np.linspace(0.0, 2.0, len(y)).astype("float32")
    side.fit(model, x, y, sample_weight=side.share(weights))
    return model.get_weights()


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(4, "relu")
        self.last = keras.layers.Dense(1)

    def call(self, x):
        return self.last(self.hidden(x))


def _subclassed(side, **options):
    keras.utils.set_random_seed(7 + side.rank)
    model = compiled(side, lambda: keras.optimizers.Adam(0.05), build=Subclassed, **options)
    side.fit(model, numbers(5), numbers(1, seed=1))
    return model.get_weights()


@row()
def subclassed_and_not_built(side):
    """Rank 0's values are given to a model whose variables do not exist when `fit` is called."""
    return _subclassed(side)


@row()
def subclassed_and_eager(side):
    return _subclassed(side, run_eagerly=True)


def _normalizing():
    layers = [keras.Input([5]), keras.layers.Dense(6), keras.layers.BatchNormalization()]
    return keras.Sequential([*layers, keras.layers.Dense(1)])


@row()
def batch_normalization(side):
    """Each worker normalizes its own rows; the reference averages the gradients of two shares."""
    x, y = numbers(5), numbers(1, seed=1)
    model = compiled(side, lambda: keras.optimizers.SGD(0.1), build=_normalizing)
    if side.is_single:
        _train_on_shares(model, [(share(x, rank), share(y, rank)) for rank in range(WORKERS)])
    else:
        side.fit(model, x, y)
    return model.trainable_variables


@row(STRATEGY)
def moving_statistics_are_averaged(side):
    """At the end of each epoch the workers average their moving statistics."""
    x, y = numbers(5), numbers(1, seed=1)
    model = compiled(side, lambda: keras.optimizers.SGD(0.1), build=_normalizing)
    if side.is_single:
        for _ in range(2):
            _train_on_shares(model, [(share(x, rank), share(y, rank)) for rank in range(WORKERS)])
    else:
        side.fit(model, x, y, epochs=2)
    evaluation = model.evaluate(x, y, batch_size=side.batch, verbose=0)
    return [*(v for v in model.variables if "seed_generator" not in v.path), [evaluation]]


def _train_on_shares(model, shares):
    """An epoch. All workers draw the same numbers; each has its own moving statistics."""
    seeds = [v for v in model.non_trainable_variables if "seed_generator" in v.path]
    statistics = [v for v in model.non_trainable_variables if "seed_generator" not in v.path]
    own = [[v.numpy() for v in statistics] for _ in shares]
    rows = BATCH // len(shares)
    for begin in range(0, STEPS * rows, rows):
        state, gradients = [seed.numpy() for seed in seeds], []
        for rank, (x, y) in enumerate(shares):
            for variable, value in zip(seeds + statistics, state + own[rank], strict=True):
                variable.assign(value)
            with tf.GradientTape() as tape:
                outputs = model(x[begin : begin + rows], training=True)
                loss = tf.reduce_mean((outputs - y[begin : begin + rows]) ** 2)
            gradients.append(tape.gradient(loss, model.trainable_variables))
            own[rank] = [v.numpy() for v in statistics]
        mean = [sum(each) / len(shares) for each in zip(*gradients, strict=True)]
        model.optimizer.apply(mean, model.trainable_variables)
    for variable, values in zip(statistics, zip(*own, strict=True), strict=True):
        variable.assign(sum(values) / len(shares))


@row(STRATEGY)
def synchronized_batch_normalization(side):
    def build():
        layers = [keras.Input([5]), keras.layers.Dense(6)]
        layers.append(keras.layers.BatchNormalization(synchronized=True))
        return keras.Sequential([*layers, keras.layers.Dense(1)])

    model = compiled(side, lambda: keras.optimizers.SGD(0.1), build=build)
    side.fit(model, numbers(5)[:25], numbers(1, seed=1)[:25], epochs=2)
    return model.get_weights()


@row()
def train_on_batch(side):
    model = compiled(side, lambda: keras.optimizers.SGD(0.1))
    x, y = side.share(numbers(5)), side.share(numbers(1, seed=1))
    for begin in range(0, len(x), side.batch):
        model.train_on_batch(x[begin : begin + side.batch], y[begin : begin + side.batch])
    return model.get_weights()


class OwnStep(keras.Sequential):
    def scaled(self, loss):
        return loss

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.scaled(tf.reduce_mean(tf.abs(self(x, training=True) - y)))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def _by_the_guide(loss):
    """`tf.distribute` sums the gradients of the replicas' losses."""
    return loss / tf.distribute.get_strategy().num_replicas_in_sync


class ScaledStep(OwnStep):
    def scaled(self, loss):
        return _by_the_guide(loss)


class OwnStepWithKerasLoss(keras.Sequential):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def _own_step(side, model_class, loss=None):
    def build():
        layers = [keras.Input([5]), keras.layers.Dense(2, "tanh"), keras.layers.Dense(1)]
        return model_class(layers)

    model = compiled(side, lambda: keras.optimizers.SGD(0.1), loss, build)
    side.fit(model, numbers(5), numbers(1, seed=1), epochs=2)
    return model.get_weights()


@row()
def custom_train_step(side):
    return _own_step(side, OwnStep)


@row(STRATEGY)
def custom_train_step_scaled_by_hand(side):
    return _own_step(side, ScaledStep)


@row()
def custom_train_step_with_compute_loss(side):
    return _own_step(side, OwnStepWithKerasLoss, "mse")


class Gan(keras.Model):
    """Two models with equal variable paths, in one step."""

    def __init__(self, side, scaled):
        super().__init__()
        self.generator = self._part(4)
        self.discriminator = self._part(1)
        self.generator_optimizer = side.distributed(keras.optimizers.Adam(0.05))
        self.discriminator_optimizer = side.distributed(keras.optimizers.SGD(0.05))
        self.scaled = scaled

    def _part(self, units):
        layers = [keras.Input([4]), keras.layers.Dense(units, name="layer")]
        return keras.Sequential(layers, name="part")

    def call(self, x):
        return self.discriminator(self.generator(x))

    def train_step(self, real):
        with tf.GradientTape(persistent=True) as tape:
            made = self.generator(real * 0.5 + 1.0)
            scores = self.discriminator(tf.concat([real, made], 0))
            half = tf.shape(real)[0]
            loss = tf.reduce_mean(tf.nn.softplus(-scores[:half]) + tf.nn.softplus(scores[half:]))
            fooled = tf.reduce_mean(tf.nn.softplus(-scores[half:]))
            loss, fooled = self.scaled(loss), self.scaled(fooled)
        for part, value, optimizer in (
            (self.discriminator, loss, self.discriminator_optimizer),
            (self.generator, fooled, self.generator_optimizer),
        ):
            variables = part.trainable_variables
            optimizer.apply(tape.gradient(value, variables), variables)
        return {"loss": loss}


def _train_gan(side, scaled):
    keras.utils.set_random_seed(5 + side.rank)
    with side.scope():
        model = Gan(side, scaled)
        model.compile()
    side.fit(model, numbers(4), None)
    return model.generator.get_weights() + model.discriminator.get_weights()


@row()
def gan(side):
    return _train_gan(side, lambda loss: loss)


@row(STRATEGY)
def gan_scaled_by_hand(side):
    return _train_gan(side, _by_the_guide)


@row()
def frozen_then_unfrozen(side):
    model = compiled(side, "sgd")
    for trainable, rate in ((False, 0.05), (True, 0.01)):
        model.layers[0].trainable = trainable
        with side.scope():
            model.compile(side.distributed(keras.optimizers.Adam(rate)), "mse")
        side.fit(model, numbers(5), numbers(1, seed=1))
    return model.get_weights()
