"""Rows about optimizers, clipping, accumulation and steps."""

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.conformance.sides import OPTIMIZER, STRATEGY, Side, compiled, dense_model, numbers, row


def train_dense(side, optimizer, wrap_options=None, **compile_options):
    model = compiled(side, optimizer, wrap_options=wrap_options, **compile_options)
    side.fit(model, numbers(5), 3 * numbers(1, seed=1), epochs=2)
    return model.get_weights()


def sgd(rate=0.1, **options):
    return lambda: keras.optimizers.SGD(rate, **options)


@row()
def dense(side):
    return train_dense(side, sgd(momentum=0.9))


@row()
def adam_by_name(side):
    return train_dense(side, "adam")


@row()
def lion(side):
    return train_dense(side, lambda: keras.optimizers.Lion(0.02))


@row()
def muon(side):
    """A matrix's update is made of the whole matrix."""
    return train_dense(side, lambda: keras.optimizers.Muon(0.02))


@row()
def clipnorm(side):
    return train_dense(side, sgd(clipnorm=0.5))


@row()
def global_clipnorm(side):
    return train_dense(side, sgd(global_clipnorm=0.5))


@row()
def clipvalue(side):
    return train_dense(side, sgd(clipvalue=0.1))


@row()
def weight_decay(side):
    return train_dense(side, lambda: keras.optimizers.AdamW(0.05, weight_decay=0.1))


@row()
def use_ema(side):
    return train_dense(side, sgd(use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=3))


@row()
def learning_rate_schedule(side):
    return train_dense(side, sgd(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)))


@row()
def static_loss_scale(side):
    return train_dense(side, sgd(clipnorm=0.5, loss_scale_factor=64.0))


@row()
def run_eagerly(side):
    return train_dense(side, sgd(), run_eagerly=True)


@row()
def steps_per_execution(side):
    return train_dense(side, sgd(), steps_per_execution=2)


@row()
def unrolled_steps_per_execution(side):
    model = compiled(side, sgd(), steps_per_execution=4)
    model.unrolled_steps_per_execution = 2
    side.fit(model, numbers(5), numbers(1, seed=1))
    return model.get_weights()


@row()
def gradient_accumulation(side):
    return train_dense(
        side, lambda: keras.optimizers.Adam(0.05, clipnorm=0.3, gradient_accumulation_steps=2)
    )


@row(OPTIMIZER)
def backward_passes_per_step(side):
    if side.is_single:
        # The sum of two steps' gradients, in Keras's own terms.
        return train_dense(side, sgd(2 * 0.05, gradient_accumulation_steps=2))
    return train_dense(side, sgd(0.05), {"backward_passes_per_step": 2})


@row(OPTIMIZER)
def average_aggregated_gradients(side):
    if side.is_single:
        return train_dense(side, sgd(gradient_accumulation_steps=2))
    options = {"backward_passes_per_step": 2, "average_aggregated_gradients": True}
    return train_dense(side, sgd(), options)


@row(OPTIMIZER)
def sum_of_gradients(side):
    """The sum over two workers is twice the average."""
    return train_dense(side, sgd(0.1 if side.is_single else 0.05), {"op": "sum"})


@row(OPTIMIZER, rounded=True)
def predivide_and_bfloat16(side):
    options = {"gradient_predivide_factor": 8.0, "compression": bps.Compression.bf16}
    return train_dense(side, sgd(0.01), options)


@row(OPTIMIZER)
def state_is_kept(side):
    """An optimizer that has trained already goes on where it was when it is wrapped."""
    optimizer = keras.optimizers.Adam(0.05)
    model = dense_model()
    model.compile(optimizer, "mse")
    Side(side.folder).fit(model, numbers(5), numbers(1, seed=1))
    model.compile(side.distributed(optimizer), "mse")
    side.fit(model, numbers(5), numbers(1, seed=1))
    return model.get_weights() + [np.array(model.optimizer.iterations)]


@row(STRATEGY)
def wrapped_optimizer_in_scope(side):
    """`DistributedOptimizer` under the strategy: reduced once, not twice."""
    optimizer = keras.optimizers.SGD(0.1, clipnorm=0.5)
    if not side.is_single:
        optimizer = bps.keras.DistributedOptimizer(optimizer)
    return train_dense(side, optimizer)


@row(STRATEGY)
def custom_training_loop(side):
    """`tf.distribute`'s own way: distributed dataset, `strategy.run`, `reduce`."""
    with side.scope():
        model, optimizer = dense_model(), keras.optimizers.Adam(0.05)
    rows = numbers(5), numbers(1, seed=1)
    dataset = tf.data.Dataset.from_tensor_slices(rows).batch(8)
    if not side.is_single:
        dataset = side.strategy.experimental_distribute_dataset(dataset)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x) - y) ** 2) / 8
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    @tf.function
    def distributed_step(x, y):
        if side.is_single:
            return step(x, y)
        return side.strategy.reduce("SUM", side.strategy.run(step, args=(x, y)), axis=None)

    losses = [distributed_step(x, y).numpy() for x, y in dataset]
    return [*model.get_weights(), losses]
