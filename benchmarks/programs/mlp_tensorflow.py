"""A TensorFlow worker that trains a multi-layer perceptron, with one of two strategies.

The same custom loop runs under `tf_byteps.BytePSStrategy` and `MultiWorkerMirroredStrategy`; the
first can use `Model.fit`, too.
"""

import time

import numpy as np
import tensorflow as tf

from benchmarks.programs import mlp_values

_strategy = None
_state = {}


def join(strategy, intra_op_threads=1):
    """Joins the job of a strategy: "byteps" or "mirrored"."""
    global _strategy
    tf.config.threading.set_intra_op_parallelism_threads(intra_op_threads)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    if strategy == "byteps":
        import tf_byteps

        _strategy = tf_byteps.BytePSStrategy()
    else:
        _strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return _strategy.num_replicas_in_sync


def leave():
    import tf_byteps

    tf_byteps.shutdown()


def build(width, layers, batch, rank):
    """Makes the model, this worker's batch, and the functions that train with it."""
    with _strategy.scope():
        weights = [tf.Variable(value) for value in mlp_values.weights(width, layers)]
    x, y = (tf.constant(value) for value in mlp_values.batch(width, batch, rank))

    def loss_of(given):
        for layer in range(layers):
            given = given @ weights[2 * layer] + weights[2 * layer + 1]
            if layer < layers - 1:
                given = tf.nn.relu(given)
        return tf.reduce_mean(tf.square(given - y))

    def train(reduce):
        with tf.GradientTape() as tape:
            loss = loss_of(x)
        gradients = tape.gradient(loss, weights)
        if reduce:
            context = tf.distribute.get_replica_context()
            gradients = context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
        for weight, gradient in zip(weights, gradients, strict=True):
            local = _strategy.experimental_local_results(weight)[0]
            local.assign_sub(mlp_values.LEARNING_RATE * gradient)
        return loss

    def first_gradient():
        last = _strategy.experimental_local_results(weights[-2])[0]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(last)
            loss = loss_of(x)
        return tf.reduce_sum(tape.gradient(loss, last)[0])

    _state["plain"] = tf.function(lambda: _strategy.run(train, args=(True,)))
    _state["local"] = tf.function(lambda: _strategy.run(train, args=(False,)))
    _state["first gradient"] = tf.function(lambda: _strategy.run(first_gradient))


def steps(kind, count):
    """Runs steps; [begin, end] of each, on the clock of all processes, and the last loss."""
    spans = []
    for _ in range(count):
        begin = time.monotonic()
        loss = float(_local(_state[kind]()))
        spans.append([begin, time.monotonic()])
    return {"spans": spans, "loss": loss}


def _local(value):
    return _strategy.experimental_local_results(value)[0]


def build_fit(width, layers, batch, jit_compile=False, **arguments):
    """The same model for `Model.fit`, compiled by XLA or not, under a strategy with these
    arguments."""
    import keras

    import tf_byteps

    strategy = tf_byteps.BytePSStrategy(**arguments)
    with strategy.scope():
        dense = [keras.layers.Dense(width, "relu") for _ in range(layers - 1)]
        model = keras.Sequential([keras.Input([width]), *dense, keras.layers.Dense(width)])
        optimizer = keras.optimizers.SGD(mlp_values.LEARNING_RATE)
        model.compile(optimizer, "mse", jit_compile=jit_compile)
    # Each worker takes its part of a global batch.
    size = strategy.num_replicas_in_sync
    _state["fit", jit_compile] = model
    _state["fit batch"] = [np.tile(v, (size, 1)) for v in mlp_values.batch(width, batch, 0)]


def fit(count, jit_compile=False):
    """Seconds of an epoch of `Model.fit` with `count` steps, without what comes before it.

    Before it are the initial values from worker 0, which travel as long as several steps do.
    """
    import keras

    times = []
    # Not after batches: some modes of training do more when there is a callback.
    clock = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: times.append(time.monotonic()),
        on_epoch_end=lambda epoch, logs: times.append(time.monotonic()),
    )
    data = tf.data.Dataset.from_tensors(tuple(_state["fit batch"])).repeat(count)
    model = _state["fit", jit_compile]
    model.fit(data, epochs=1, shuffle=False, verbose=0, callbacks=[clock])
    return times[1] - times[0]


def has_cross_step():
    """Whether the strategy can go on with the next step before all sums are there."""
    import inspect

    import tf_byteps

    return "cross_step" in inspect.signature(tf_byteps.BytePSStrategy.__init__).parameters


def record(kind, path):
    """Runs one step and records it; returns its [begin, end] in nanoseconds since 1970."""
    import tf_byteps

    tf_byteps.start_timeline(path)
    begin = time.time_ns()
    float(_local(_state[kind]()))
    end = time.time_ns()
    tf_byteps.stop_timeline()
    return [begin, end]
