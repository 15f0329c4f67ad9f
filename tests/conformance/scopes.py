"""Rows about models and optimizers that are made outside the scope."""

import keras
import tensorflow as tf

from tests.conformance.sides import STRATEGY, dense_model, numbers, row


def _adam():
    return keras.optimizers.Adam(
        0.05, weight_decay=0.1, use_ema=True, ema_overwrite_frequency=3, clipnorm=0.5
    )


def _fit(side, model):
    side.fit(model, numbers(5), numbers(1, seed=1))
    return [*model.get_weights(), *(v for v in model.optimizer.variables)]


@row(STRATEGY)
def compiled_outside_the_scope(side):
    """Only the model is made in the scope, as Keras's guides often do it."""
    with side.scope():
        model = dense_model()
    model.compile(_adam(), "mse")
    return _fit(side, model)


@row(STRATEGY)
def model_made_outside_the_scope(side):
    model = dense_model()
    with side.scope():
        model.compile(_adam(), "mse", metrics=["mae"])
    return _fit(side, model)


@row(STRATEGY)
def only_trained_in_the_scope(side):
    """After a training outside of it, which is each worker's own: the optimizer has its slots."""
    model = dense_model()
    model.compile(_adam(), "mse", metrics=["mae"])
    x, y = numbers(5, rows=29), numbers(1, seed=1, rows=29)
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    before = [model.evaluate(x, y, verbose=0), model.predict(x, verbose=0)]
    with side.scope():
        model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
        after = [model.evaluate(x, y, verbose=0), model.predict(x, verbose=0)]
    return [*before, *after, *_fit(side, model)]


@row(STRATEGY)
def only_predicted_in_the_scope(side):
    """The function that was traced outside must not be used again."""
    model = dense_model()
    x = numbers(5, rows=29)
    results = [model.predict(x, batch_size=8, verbose=0)]
    with side.scope():
        results.append(model.predict(x, batch_size=8, verbose=0))
    assert len(results[1]) == 29, results[1].shape
    return results


@row(STRATEGY)
def accumulation_made_outside_the_scope(side):
    with side.scope():
        model = dense_model()
    model.compile(keras.optimizers.Adam(0.05, gradient_accumulation_steps=2), "mse")
    return _fit(side, model)


@row(STRATEGY, rounded=True)
def loss_scale_made_outside_the_scope(side):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        with side.scope():
            model = dense_model()
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
        return _fit(side, model)
    finally:
        keras.config.set_dtype_policy("float32")


@row(STRATEGY)
def own_loop_with_optimizer_made_outside(side):
    model, optimizer = dense_model(), _adam()
    dataset = tf.data.Dataset.from_tensor_slices((numbers(5), numbers(1, seed=1))).batch(8)
    if not side.is_single:
        dataset = side.strategy.experimental_distribute_dataset(dataset)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x) - y) ** 2) / 8
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    @tf.function
    def distributed_step(x, y):
        if side.is_single:
            step(x, y)
        else:
            side.strategy.run(step, args=(x, y))

    for x, y in dataset:
        distributed_step(x, y)
    return model.get_weights()
