"""A Keras worker on JAX that trains the multi-layer perceptron with `keras.distribution`."""

import time

import jax
import keras

from benchmarks.programs import mlp_values

_state = {}


def join(coordinator, workers, rank):
    """Joins the processes, whose CPUs add up gradients by Gloo."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator, workers, rank)
    # Each process has its own rows, as they come.
    distribution = keras.distribution.DataParallel(auto_shard_dataset=False)
    keras.distribution.set_distribution(distribution)
    return jax.device_count()


def build_fit(width, layers, batch):
    """Makes the model for `Model.fit`, which Keras compiles by default, and this worker's batch."""
    keras.utils.set_random_seed(1)  # Keras on JAX refuses weights that differ
    dense = [keras.layers.Dense(width, "relu") for _ in range(layers - 1)]
    model = keras.Sequential([keras.Input([width]), *dense, keras.layers.Dense(width)])
    model.compile(keras.optimizers.SGD(mlp_values.LEARNING_RATE), "mse")
    _state["fit"] = model
    _state["fit batch"] = mlp_values.batch(width, batch, 0)


def fit(count):
    """Seconds of an epoch of `Model.fit` with `count` steps, without what comes before it."""
    times = []
    clock = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: times.append(time.monotonic()),
        on_epoch_end=lambda epoch, logs: times.append(time.monotonic()),
    )
    batches = (_state["fit batch"] for _ in range(count))
    _state["fit"].fit(batches, steps_per_epoch=count, verbose=0, callbacks=[clock])
    return times[1] - times[0]
