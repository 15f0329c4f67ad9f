"""What the workers of test_asynchronous_optimizer.py do, with BYTEPS_ENABLE_ASYNC=1."""

import json
import os

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.errors import error_of

STEPS, ROWS = 15, 120


def _meet(name):
    bps.push_pull(tf.constant(0), op="sum", name=f"meet {name}")


def counted(name, op, graph, inner):
    """Worker 0 makes all of its steps before the others begin. Each moves the weights by a number
    of its own."""
    bps.init()
    start = np.arange(2000, dtype=np.float32).reshape(50, 40)
    weights = [keras.Variable(start, name=f"{name}_{index}") for index in range(2)]
    optimizer = keras.optimizers.SGD(1.0)
    if inner:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=4.0)
    optimizer = bps.DistributedOptimizer(optimizer, op=op)
    optimizer.build(weights)

    def step(gradient):
        optimizer.apply([tf.fill(start.shape, gradient)] * 2, weights)

    step = tf.function(step) if graph else step
    scale = 4.0 if inner else 1.0
    alone = None
    step(tf.constant(0.0))  # all begin together
    for rank in range(bps.size()):
        if rank == bps.rank():
            for _ in range(STEPS):
                step(tf.constant(-scale * 6 * 2**rank))
            alone = weights[0].numpy() - start
        _meet(f"{name} {rank}")
    step(tf.constant(0.0))
    return [
        alone[0, 0].item(),
        *((weight.numpy() - start).ravel()[[0, -1]].tolist() for weight in weights),
    ]


def fits():
    """The program of BytePS's examples: an optimizer, a callback, and a worker's own rows."""
    bps.init()
    random = np.random.default_rng(bps.rank())
    x = random.normal(size=(ROWS, 8)).astype("float32")
    y = x @ np.linspace(-1, 1, 8, dtype="float32")[:, None]
    given = x.copy(), y.copy()
    keras.utils.set_random_seed(bps.rank())  # the callback makes the weights equal
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile(bps.DistributedOptimizer(keras.optimizers.SGD(0.05)), "mse")
    callback = bps.keras.callbacks.BroadcastGlobalVariablesCallback(0)
    losses = model.fit(x, y, batch_size=10, epochs=3, callbacks=[callback], verbose=0).history
    again = model.fit(x, y, batch_size=10, epochs=1, verbose=0).history
    assert all(np.array_equal(a, b) for a, b in zip(given, (x, y), strict=True))
    _meet("fitted")
    for rate in (0.01, 0.05):  # other optimizers for the same weights
        model.compile(bps.DistributedOptimizer(keras.optimizers.SGD(rate)), "mse")
        more = model.fit(x, y, batch_size=10, epochs=1, verbose=0).history
        again["loss"] += more["loss"]
    bps.shutdown()
    bps.init()
    again["loss"] += model.fit(x, y, batch_size=10, epochs=1, verbose=0).history["loss"]
    _meet("fitted again")
    model.optimizer.learning_rate = 0.0
    model.fit(x, y, batch_size=ROWS, verbose=0)
    weights = np.concatenate([np.ravel(each) for each in model.get_weights()])
    return [*losses["loss"], *again["loss"]], weights.tolist()


def fits_with_callbacks():
    """The calls of BytePS's program for Keras, which is asynchronous by the variable alone."""
    bps.keras.init()
    random = np.random.default_rng(bps.rank())
    x = random.normal(size=(ROWS, 8, 8, 1)).astype("float32")
    y = (x.mean(axis=(1, 2, 3)) > 0).astype("int64")
    rows = tf.data.Dataset.from_tensor_slices((tf.cast(x, tf.float32), tf.cast(y, tf.int64)))
    keras.utils.set_random_seed(bps.rank())
    model = keras.Sequential(
        [
            keras.layers.Conv2D(4, [3, 3], activation="relu"),
            keras.layers.MaxPooling2D(pool_size=(2, 2)),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(2, activation="softmax"),
        ]
    )
    rate = 0.005 * bps.keras.size()
    optimizer = bps.keras.DistributedOptimizer(keras.optimizers.Adam(rate))
    loss = keras.losses.SparseCategoricalCrossentropy()
    model.compile(loss=loss, optimizer=optimizer, metrics=["accuracy"])
    callbacks = [
        bps.keras.callbacks.BroadcastGlobalVariablesCallback(0, device="GPU:0"),
        bps.keras.callbacks.MetricAverageCallback(device="GPU:0"),
        bps.keras.callbacks.LearningRateWarmupCallback(warmup_epochs=2, initial_lr=rate, verbose=1),
    ]
    rows = rows.repeat().shuffle(ROWS).batch(20)
    steps = 24 // bps.keras.size()
    return model.fit(rows, steps_per_epoch=steps, callbacks=callbacks, epochs=6, verbose=0).history


def differs():
    """On worker 1 the variable is not set."""
    is_second = json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1
    bps.init(bps.Config.from_environment(enable_async=False) if is_second else None)
    optimizer = bps.DistributedOptimizer(keras.optimizers.SGD(0.1))
    return error_of(optimizer.apply, [tf.ones(3)], [keras.Variable(np.ones(3), name="differs")])


def refusals():
    bps.init()
    weight = keras.Variable(np.ones(3, np.float32), name="refused")

    def applied(**arguments):
        optimizer = bps.DistributedOptimizer(keras.optimizers.SGD(0.1), **arguments)
        optimizer.apply([tf.ones(3)], [weight])

    def taped():
        with bps.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(weight.value)
        tape.gradient(loss, [weight.value])

    found = {
        "compression": error_of(applied, compression="fp16"),
        "factor": error_of(applied, gradient_predivide_factor=2.0),
        "tape": error_of(taped),
        "strategy": error_of(bps.BytePSStrategy),
    }
    return found, weight.numpy().tolist()
