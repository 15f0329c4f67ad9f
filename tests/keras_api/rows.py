"""Trainings that must give the same with two workers and `DistributedOptimizer` as in one process.

Each function of `ROWS` trains with a `Side`: the single process on whole batches, or one worker on
its share of every batch. It returns a list of arrays.
"""

import time
import traceback

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps

BATCH = 8
STEPS = 4


class Side:
    """One of the two trainings that are compared."""

    def __init__(self, rank, size):
        self.rank = rank
        self.size = size

    @property
    def batch(self):
        return BATCH // self.size

    def share(self, array):
        """The rows of each batch that this side trains on."""
        batches = np.asarray(array).reshape(-1, BATCH, *np.shape(array)[1:])
        mine = batches[:, self.rank * self.batch : (self.rank + 1) * self.batch]
        return mine.reshape(-1, *np.shape(array)[1:])

    def distributed(self, optimizer, **options):
        if self.size == 1:
            return optimizer
        return bps.keras.DistributedOptimizer(optimizer, **options)

    def fit(self, model, x, y, **options):
        shares = [None if a is None else tf.nest.map_structure(self.share, a) for a in (x, y)]
        model.fit(*shares, batch_size=self.batch, shuffle=False, verbose=0, **options)


def numbers(*shape, seed=0):
    return np.random.RandomState(seed).normal(size=(BATCH * STEPS, *shape)).astype("float32")


def classes(count, *shape, seed=0):
    return np.random.RandomState(seed).randint(count, size=(BATCH * STEPS, *shape))


def dense_model(**options):
    return keras.Sequential(
        [keras.Input([5]), keras.layers.Dense(6, "tanh"), keras.layers.Dense(1)], **options
    )


def train_dense(side, optimizer, compile_options=None, wrap_options=None, **fit_options):
    model = dense_model()
    model.compile(side.distributed(optimizer, **wrap_options or {}), "mse", **compile_options or {})
    side.fit(model, numbers(5), 3 * numbers(1, seed=1), **{"epochs": 2, **fit_options})
    return model.get_weights()


def dense(side):
    return train_dense(side, keras.optimizers.SGD(0.1, momentum=0.9))


def clipnorm(side):
    return train_dense(side, keras.optimizers.SGD(0.1, clipnorm=0.5))


def global_clipnorm(side):
    return train_dense(side, keras.optimizers.SGD(0.1, global_clipnorm=0.5))


def clipvalue(side):
    return train_dense(side, keras.optimizers.SGD(0.1, clipvalue=0.1))


def weight_decay(side):
    return train_dense(side, keras.optimizers.AdamW(0.05, weight_decay=0.1))


def use_ema(side):
    optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=3)
    return train_dense(side, optimizer)


def learning_rate_schedule(side):
    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    return train_dense(side, keras.optimizers.SGD(rate))


def static_loss_scale(side):
    return train_dense(side, keras.optimizers.SGD(0.1, clipnorm=0.5, loss_scale_factor=64.0))


def run_eagerly(side):
    return train_dense(side, keras.optimizers.SGD(0.1), {"run_eagerly": True})


def steps_per_execution(side):
    return train_dense(side, keras.optimizers.SGD(0.1), {"steps_per_execution": 2})


def unrolled_steps_per_execution(side):
    model = dense_model()
    model.compile(side.distributed(keras.optimizers.SGD(0.1)), "mse", steps_per_execution=4)
    model.unrolled_steps_per_execution = 2
    side.fit(model, numbers(5), numbers(1, seed=1))
    return model.get_weights()


def gradient_accumulation(side):
    optimizer = keras.optimizers.Adam(0.05, clipnorm=0.3, gradient_accumulation_steps=2)
    return train_dense(side, optimizer)


def backward_passes_per_step(side):
    if side.size == 1:
        # The sum of two steps' gradients, in Keras's own terms.
        return train_dense(side, keras.optimizers.SGD(2 * 0.05, gradient_accumulation_steps=2))
    return train_dense(
        side, keras.optimizers.SGD(0.05), wrap_options={"backward_passes_per_step": 2}
    )


def average_aggregated_gradients(side):
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=None)
    if side.size == 1:
        return train_dense(side, keras.optimizers.SGD(0.1, gradient_accumulation_steps=2))
    options = {"backward_passes_per_step": 2, "average_aggregated_gradients": True}
    return train_dense(side, optimizer, wrap_options=options)


def sum_of_gradients(side):
    """The sum over two workers is twice the average."""
    rate = 0.1 if side.size == 1 else 0.05
    return train_dense(side, keras.optimizers.SGD(rate), wrap_options={"op": "sum"})


def predivide_and_bfloat16(side):
    options = {"gradient_predivide_factor": 8.0, "compression": bps.Compression.bf16}
    return train_dense(side, keras.optimizers.SGD(0.01), wrap_options=options)


def _embedding(side, optimizer, **options):
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input([4], dtype="int32"),
            keras.layers.Embedding(9, 3),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    model.compile(side.distributed(optimizer, **options), "mse")
    # Few different indices: duplicates within a worker and between workers.
    side.fit(model, classes(5, 4), numbers(1, seed=1), epochs=2)
    return model.get_weights()


def embedding_sgd(side):
    return _embedding(side, keras.optimizers.SGD(0.1, momentum=0.5))


def embedding_sgd_as_dense(side):
    return _embedding(side, keras.optimizers.SGD(0.1, momentum=0.5), sparse_as_dense=True)


def embedding_adam(side):
    return _embedding(side, _adam_for_slices(side))


def embedding_adam_as_dense(side):
    return _embedding(side, _adam_for_slices(side), sparse_as_dense=True)


def embedding_accumulation(side):
    return _embedding(side, keras.optimizers.Adam(0.05, gradient_accumulation_steps=2))


class MergingAdam(keras.optimizers.Adam):
    """Keras's Adam squares rows of one index before it adds them; this one adds them first."""

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(tf.convert_to_tensor(gradient), variable, learning_rate)


def _adam_for_slices(side):
    return MergingAdam(0.05) if side.size == 1 else keras.optimizers.Adam(0.05)


def several_inputs_and_outputs(side):
    first, second = keras.Input([3], name="first"), keras.Input([2], name="second")
    joined = keras.layers.Concatenate()([first, second])
    outputs = {
        "a": keras.layers.Dense(1, name="a")(joined),
        "b": keras.layers.Dense(4, activation="softmax", name="b")(joined),
    }
    model = keras.Model({"first": first, "second": second}, outputs)
    losses = {"a": "mse", "b": "sparse_categorical_crossentropy"}
    model.compile(
        side.distributed(keras.optimizers.Adam(0.05)), losses, loss_weights={"a": 0.3, "b": 1.0}
    )
    x = {"first": numbers(3), "second": numbers(2, seed=2)}
    side.fit(model, x, {"a": numbers(1, seed=1), "b": classes(4)})
    return model.get_weights()


def class_and_sample_weights(side):
    model = keras.Sequential([keras.Input([5]), keras.layers.Dense(3, activation="softmax")])
    model.compile(side.distributed(keras.optimizers.SGD(0.1)), "sparse_categorical_crossentropy")
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


def subclassed_and_not_built(side):
    """Rank 0's values are given to a model whose variables do not exist when `fit` is called."""
    keras.utils.set_random_seed(7 + side.rank)
    model = Subclassed()
    model.compile(side.distributed(keras.optimizers.Adam(0.05)), "mse")
    callbacks = [bps.keras.callbacks.BroadcastGlobalVariablesCallback(0)]
    side.fit(model, numbers(5), numbers(1, seed=1), callbacks=callbacks if side.size > 1 else None)
    return model.get_weights()


def subclassed_and_eager(side):
    keras.utils.set_random_seed(7 + side.rank)
    model = Subclassed()
    model.compile(side.distributed(keras.optimizers.Adam(0.05)), "mse", run_eagerly=True)
    callbacks = [bps.keras.callbacks.BroadcastGlobalVariablesCallback(0)]
    side.fit(model, numbers(5), numbers(1, seed=1), callbacks=callbacks if side.size > 1 else None)
    return model.get_weights()


def batch_normalization_and_dropout(side):
    """Each worker normalizes its own rows; the reference averages the gradients of two shares."""
    layers = [keras.Input([5]), keras.layers.Dense(6), keras.layers.BatchNormalization()]
    model = keras.Sequential([*layers, keras.layers.Dropout(0.3), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.1)
    x, y = numbers(5), numbers(1, seed=1)
    if side.size > 1:
        model.compile(side.distributed(optimizer), "mse")
        side.fit(model, x, y)
    else:
        _train_on_shares(
            model, optimizer, [(s.share(x), s.share(y)) for s in (Side(0, 2), Side(1, 2))]
        )
    return model.trainable_variables


def _train_on_shares(model, optimizer, shares):
    seeds = [variable for variable in model.variables if "seed_generator" in variable.path]
    rows = BATCH // len(shares)
    for begin in range(0, STEPS * rows, rows):
        state, gradients = [seed.numpy() for seed in seeds], []
        for x, y in shares:
            for seed, value in zip(seeds, state, strict=True):
                seed.assign(value)  # all workers draw the same numbers
            with tf.GradientTape() as tape:
                outputs = model(x[begin : begin + rows], training=True)
                loss = tf.reduce_mean((outputs - y[begin : begin + rows]) ** 2)
            gradients.append(tape.gradient(loss, model.trainable_variables))
        mean = [sum(each) / len(shares) for each in zip(*gradients, strict=True)]
        optimizer.apply(mean, model.trainable_variables)


def train_on_batch(side):
    model = dense_model()
    model.compile(side.distributed(keras.optimizers.SGD(0.1)), "mse")
    x, y = side.share(numbers(5)), side.share(numbers(1, seed=1))
    for begin in range(0, len(x), side.batch):
        model.train_on_batch(x[begin : begin + side.batch], y[begin : begin + side.batch])
    return model.get_weights()


class OwnStep(keras.Sequential):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.abs(self(x, training=True) - y))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def custom_train_step(side):
    model = OwnStep([keras.Input([5]), keras.layers.Dense(2, "tanh"), keras.layers.Dense(1)])
    model.compile(side.distributed(keras.optimizers.Adam(0.05)))
    side.fit(model, numbers(5), numbers(1, seed=1), epochs=2)
    return model.get_weights()


class Gan(keras.Model):
    """Two models with equal variable paths, in one step."""

    def __init__(self, side):
        super().__init__()
        self.generator = self._part(4)
        self.discriminator = self._part(1)
        self.generator_optimizer = side.distributed(keras.optimizers.Adam(0.05))
        self.discriminator_optimizer = side.distributed(keras.optimizers.SGD(0.05))

    def _part(self, units):
        layers = [keras.Input([4]), keras.layers.Dense(units, name="layer")]
        return keras.Sequential(layers, name="part")

    def train_step(self, real):
        with tf.GradientTape(persistent=True) as tape:
            made = self.generator(real * 0.5 + 1.0)
            scores = self.discriminator(tf.concat([real, made], 0))
            half = tf.shape(real)[0]
            loss = tf.reduce_mean(tf.nn.softplus(-scores[:half]) + tf.nn.softplus(scores[half:]))
            fooled = tf.reduce_mean(tf.nn.softplus(-scores[half:]))
        for part, value, optimizer in (
            (self.discriminator, loss, self.discriminator_optimizer),
            (self.generator, fooled, self.generator_optimizer),
        ):
            variables = part.trainable_variables
            optimizer.apply(tape.gradient(value, variables), variables)
        return {"loss": loss}


def gan(side):
    keras.utils.set_random_seed(5 + side.rank)
    model = Gan(side)
    model.compile()
    callbacks = [bps.keras.callbacks.BroadcastGlobalVariablesCallback(0)]
    side.fit(model, numbers(4), None, callbacks=callbacks if side.size > 1 else None)
    return model.generator.get_weights() + model.discriminator.get_weights()


def frozen_then_unfrozen(side):
    model = dense_model()
    model.layers[0].trainable = False
    model.compile(side.distributed(keras.optimizers.Adam(0.05)), "mse")
    side.fit(model, numbers(5), numbers(1, seed=1))
    model.layers[0].trainable = True
    model.compile(side.distributed(keras.optimizers.Adam(0.01)), "mse")
    side.fit(model, numbers(5), numbers(1, seed=1))
    return model.get_weights()


def state_is_kept(side):
    """An optimizer that has trained already goes on where it was when it is wrapped."""
    model = dense_model()
    optimizer = keras.optimizers.Adam(0.05)
    model.compile(optimizer, "mse")
    whole = Side(0, 1)
    whole.fit(model, numbers(5), numbers(1, seed=1))
    model.compile(side.distributed(optimizer), "mse")
    side.fit(model, numbers(5), numbers(1, seed=1))
    return model.get_weights() + [np.array(model.optimizer.iterations)]


def _mixed(side, policy, x, inner=None):
    keras.config.set_dtype_policy(policy)
    try:
        model = dense_model()
        optimizer = inner or keras.optimizers.SGD(0.05)
        if side.size > 1:
            optimizer = bps.keras.DistributedOptimizer(optimizer)
        model.compile(optimizer, "mse")
        side.fit(model, x, numbers(1, seed=1), epochs=2)
        return model.get_weights() + [np.array(v) for v in model.optimizer.variables[:2]]
    finally:
        keras.config.set_dtype_policy("float32")


def _overflowing():
    x = numbers(5)
    x[2 * BATCH - 1] = np.inf  # the second step, and of two workers only the last
    return x


def mixed_float16(side):
    return _mixed(side, "mixed_float16", numbers(5))


def mixed_float16_overflow(side):
    return _mixed(side, "mixed_float16", _overflowing())


def mixed_float16_own_loss_scale(side):
    inner = keras.optimizers.SGD(0.05, global_clipnorm=0.5)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=1024.0)
    return _mixed(side, "mixed_float16", _overflowing(), optimizer)


def mixed_float16_accumulation_overflow(side):
    inner = keras.optimizers.SGD(0.05, gradient_accumulation_steps=4)
    return _mixed(side, "mixed_float16", _overflowing(), inner)


def mixed_bfloat16(side):
    return _mixed(side, "mixed_bfloat16", numbers(5))


def saved_and_loaded(side):
    """The file of a distributed model opens in plain Keras, and training goes on from it."""
    import os
    import tempfile

    model = dense_model()
    model.compile(side.distributed(keras.optimizers.Adam(0.05)), "mse")
    side.fit(model, numbers(5), numbers(1, seed=1))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        plain = keras.models.load_model(path)
        assert type(plain.optimizer) is keras.optimizers.Adam, type(plain.optimizer)
        assert int(plain.optimizer.iterations) == STEPS
        model = bps.keras.load_model(path) if side.size > 1 else plain
    side.fit(model, numbers(5), numbers(1, seed=1))
    return model.get_weights()


ROWS = (
    dense,
    clipnorm,
    global_clipnorm,
    clipvalue,
    weight_decay,
    use_ema,
    learning_rate_schedule,
    static_loss_scale,
    run_eagerly,
    steps_per_execution,
    unrolled_steps_per_execution,
    gradient_accumulation,
    backward_passes_per_step,
    average_aggregated_gradients,
    sum_of_gradients,
    predivide_and_bfloat16,
    embedding_sgd,
    embedding_sgd_as_dense,
    embedding_adam,
    embedding_adam_as_dense,
    embedding_accumulation,
    several_inputs_and_outputs,
    class_and_sample_weights,
    subclassed_and_not_built,
    subclassed_and_eager,
    batch_normalization_and_dropout,
    train_on_batch,
    custom_train_step,
    gan,
    frozen_then_unfrozen,
    state_is_kept,
    mixed_float16,
    mixed_float16_overflow,
    mixed_float16_own_loss_scale,
    mixed_float16_accumulation_overflow,
    mixed_bfloat16,
    saved_and_loaded,
)


def run_rows(names):
    """Called in each worker. Returns {row: {"weights", "reference" (on rank 0), or "error"}}."""
    bps.init()
    results = {}
    for row in ROWS:
        if not names or row.__name__ in names:
            begin = time.monotonic()
            results[row.__name__] = _run_row(row)
            print(f"{row.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
    return results


def _run_row(row):
    result = {}
    try:
        if bps.rank() == 0:
            result["reference"] = _train(row, Side(0, 1))
    except Exception:
        result["error"] = traceback.format_exc()
    # A worker must not go on to the next row alone.
    if any(bps.allgather_object("error" in result, name=row.__name__)):
        return result
    try:
        result["weights"] = _train(row, Side(bps.rank(), bps.size()))
    except Exception:
        result["error"] = traceback.format_exc()
    bps.allgather_object(None, name=row.__name__)
    return result


def _train(row, side):
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    return [np.asarray(array, "float64").tolist() for array in row(side)]
