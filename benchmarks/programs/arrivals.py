"""A worker that trains a model of seven layers in several ways and leaves a timeline of each."""

import keras
import numpy as np
import tensorflow as tf

import tf_byteps

# Backpropagation ends with the first layer's kernel. Its gradient takes by far the longest: 2 *
# ROWS * INPUTS * WIDTHS[0] operations, 32 times those of the second layer's. Meanwhile all others,
# which are small, have time enough to leave, also on a machine that is busy otherwise.
ROWS = 1024  # of a worker's batch
INPUTS = 4096
WIDTHS = (512, 128, 128, 128, 128, 128, 16)
UPDATES = 8
ACCUMULATED = 2

OPTIMIZERS = {
    "SGD": lambda: keras.optimizers.SGD(1e-3),
    "Adam": lambda: keras.optimizers.Adam(1e-4),
    "clipnorm": lambda: keras.optimizers.Adam(1e-4, clipnorm=1.0),
    "global_clipnorm": lambda: keras.optimizers.Adam(1e-4, global_clipnorm=1.0),
    "clipvalue": lambda: keras.optimizers.Adam(1e-4, clipvalue=1.0),
    "loss scaling": lambda: keras.optimizers.Adam(1e-4),
    "accumulation": lambda: _accumulating(),
    "accumulation and loss scaling": lambda: _accumulating(),
}

_strategy = None


def join():
    global _strategy
    # As on a machine of two cores, whatever this one has.
    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    _strategy = tf_byteps.BytePSStrategy()


def leave():
    tf_byteps.shutdown()


def train(way, kind, path):
    """Trains for UPDATES updates; `path` gets the timeline."""
    tf_byteps.start_timeline(path)
    steps = UPDATES * (ACCUMULATED if "accumulation" in kind else 1)
    _WAYS[way](kind, steps)
    tf_byteps.stop_timeline()
    keras.backend.clear_session()


def _accumulating():
    return keras.optimizers.Adam(1e-4, gradient_accumulation_steps=ACCUMULATED)


def _model(kind):
    """Its variables have the same paths in every case, which benchmarks.arrivals knows."""
    mixed = "loss scaling" in kind
    keras.config.set_dtype_policy("mixed_float16" if mixed else "float32")
    # The fused operation that TensorFlow makes of a layer is hundreds of times slower in float16 on
    # a CPU than the operations that it replaces.
    tf.config.optimizer.set_experimental_options({"remapping": not mixed})
    layers = [
        keras.layers.Dense(width, "relu" if width != WIDTHS[-1] else None, name=f"layer{number}")
        for number, width in enumerate(WIDTHS, 1)
    ]
    return keras.Sequential([keras.Input([INPUTS]), *layers], name="model")


def _batch(rows):
    generator = np.random.default_rng(1)
    inputs = generator.standard_normal((rows, INPUTS), np.float32)
    return inputs, generator.standard_normal((rows, WIDTHS[-1]), np.float32)


def _fit_in_strategy(kind, steps):
    with _strategy.scope():
        model = _model(kind)
        model.compile(OPTIMIZERS[kind](), "mse")
    _fit(model, steps, ROWS * tf_byteps.size())


def _fit_without(kind, steps):
    model = _model(kind)
    model.compile(tf_byteps.DistributedOptimizer(OPTIMIZERS[kind]()), "mse")
    _fit(model, steps, ROWS)


def _fit(model, steps, rows):
    model.fit(tf.data.Dataset.from_tensor_slices(_batch(rows)).batch(rows).repeat(steps), verbose=0)


def _loop(kind, steps, distribute, tape_of=lambda tape: tape, before=list):
    """A training loop of one's own.

    Args:
        distribute: what is done to the optimizer.
        tape_of: what is done to the tape.
        before: what is done to the gradients before the optimizer gets them.
    """
    model = _model(kind)
    optimizer = OPTIMIZERS[kind]()
    if "loss scaling" in kind:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    optimizer = distribute(optimizer)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.MeanSquaredError()

    @tf.function
    def step(inputs, targets):
        with tape_of(tf.GradientTape()) as tape:
            loss = optimizer.scale_loss(loss_of(targets, model(inputs, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(before(gradients), model.trainable_variables)

    inputs, targets = (tf.constant(array) for array in _batch(ROWS))
    for _ in range(steps):
        step(inputs, targets)


def _loop_with_optimizer(kind, steps):
    _loop(kind, steps, tf_byteps.DistributedOptimizer)


def _loop_with_tape(kind, steps):
    _loop(kind, steps, lambda optimizer: optimizer, tf_byteps.DistributedGradientTape)


def _loop_that_waits(kind, steps):
    """What must not happen: each gradient is held back until all are there."""

    def wait_for_all(gradients):
        with tf.control_dependencies(gradients):
            return [tf.identity(gradient) for gradient in gradients]

    _loop(kind, steps, tf_byteps.DistributedOptimizer, before=wait_for_all)


_WAYS = {
    "BytePSStrategy, fit": _fit_in_strategy,
    "DistributedOptimizer, fit": _fit_without,
    "DistributedOptimizer, loop": _loop_with_optimizer,
    "DistributedGradientTape, loop": _loop_with_tape,
    "for comparison: waits for all": _loop_that_waits,
}
