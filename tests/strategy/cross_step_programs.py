"""What the workers of the tests of training across steps do."""

import functools
import os
import signal
import tempfile
import warnings

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tf_byteps import timeline
from tf_byteps.ops import split
from tf_byteps.ops.library import kernels, token
from tf_byteps.ops.reduction import Reduction

# Sums of floats must not depend on how threads share them.
tf.config.threading.set_intra_op_parallelism_threads(1)

BATCH = 16
ROWS = 24 * BATCH + 1  # in the last of 25 steps an epoch only worker 0 has a row


class Losses(keras.callbacks.Callback):
    """Notes the loss so far after each batch."""

    reads_weights = False

    def __init__(self):
        super().__init__()
        self.losses = []
        self.done = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(logs["loss"])
        self.done.append(_updates_done(self.model))


def _updates_done(model):
    """Past Keras, which would do those that are left."""
    return int(model.optimizer._iterations._value.numpy())


def _data(rows=ROWS):
    random = np.random.default_rng(0)
    x = random.integers(0, 50, size=(rows, 6))
    return x, random.normal(size=(rows, 1)).astype("float32")


def _model(optimizer, extra=(), sparse=True, dropout=0.3, **compile_arguments):
    first = keras.layers.Embedding(50, 8) if sparse else keras.layers.Rescaling(1 / 50)
    model = keras.Sequential(
        [
            keras.Input([6], dtype="int32"),
            first,
            keras.layers.Flatten(),
            keras.layers.Dense(16, "relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(16, "tanh"),
            *extra,
            keras.layers.Dense(1),
        ]
    )
    model.compile(_optimizer(optimizer), "mse", metrics=["mae"], **compile_arguments)
    return model


def _optimizer(name):
    optimizers, schedule = keras.optimizers, keras.optimizers.schedules
    return {
        "momentum": lambda: optimizers.SGD(0.05, momentum=0.9),
        "slow": lambda: optimizers.SGD(0.002, momentum=0.9),
        "scheduled adam": lambda: optimizers.Adam(schedule.ExponentialDecay(0.01, 5, 0.9)),
        "averaging": lambda: optimizers.AdamW(
            0.01, use_ema=True, ema_overwrite_frequency=7, clipnorm=0.5
        ),
        "distributed": lambda: bps.DistributedOptimizer(optimizers.SGD(0.05, momentum=0.9)),
        "global_clipnorm": lambda: optimizers.Adam(0.01, global_clipnorm=0.1),
        "loss scaling": lambda: optimizers.LossScaleOptimizer(optimizers.SGD(0.05)),
        "loss_scale_factor": lambda: optimizers.SGD(0.05, loss_scale_factor=8.0),
        "accumulation": lambda: optimizers.SGD(0.05, gradient_accumulation_steps=2),
    }[name]()


def _batches(fail_at=None):
    """The data as a generator, whose length nobody knows."""
    x, y = _data()

    def generate():
        for step, begin in enumerate(range(0, len(x), BATCH)):
            if step == fail_at:
                raise ValueError("no more data")
            yield x[begin : begin + BATCH], y[begin : begin + BATCH]

    spec = tf.TensorSpec([None, 6], tf.int64), tf.TensorSpec([None, 1], tf.float32)
    return tf.data.Dataset.from_generator(generate, output_signature=spec)


def train(
    optimizer="momentum",
    cross_step=True,
    source="arrays",
    extra=None,
    sparse_as_dense=False,
    **compile_arguments,
):
    """50 steps in two epochs.

    Returns:
        A dictionary: the losses, the updates that had been done after each batch, the warnings, and
        all weights, of the optimizer too.
    """
    keras.utils.set_random_seed(1)
    layers = []
    if extra == "synchronized":
        layers = [keras.layers.BatchNormalization(synchronized=True)]
    if extra == "wide":
        layers = [keras.layers.Dense(520, "tanh") for _ in range(3)]
    strategy = bps.BytePSStrategy(cross_step=cross_step, sparse_as_dense=sparse_as_dense)
    with strategy.scope():
        model = _model(optimizer, layers, **compile_arguments)
    data = {"x": _data()[0], "y": _data()[1], "batch_size": BATCH, "shuffle": False}
    if source == "generator":
        data = {"x": _batches()}
    losses = Losses()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        history = model.fit(**data, epochs=2, verbose=0, callbacks=[losses])
    model.train_on_batch(*_data(BATCH))  # plain again
    return {
        "losses": losses.losses,
        "done": losses.done,
        "epochs": history.history,
        "warnings": [str(w.message) for w in caught if "cross_step" in str(w.message)],
        "weights": _everything(model),
        "iterations": len(model.weights),  # its place in the list
    }


def _everything(model):
    return [v.numpy() for v in [*model.weights, *model.optimizer.variables]]


class CustomStep(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x):
        return self.dense(tf.cast(x, tf.float32))

    def train_step(self, data):
        return super().train_step(data)


def custom_step(cross_step=True):
    keras.utils.set_random_seed(1)
    with bps.BytePSStrategy(cross_step=cross_step).scope():
        model = CustomStep()
        model.compile(keras.optimizers.SGD(1e-4), "mse")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(*_data(), batch_size=BATCH, shuffle=False, verbose=0)
    return {
        "warnings": [str(w.message) for w in caught if "cross_step" in str(w.message)],
        "weights": _everything(model),
    }


# Who looks at the weights sees them.


class Looks(keras.callbacks.Callback):
    """Uses the model in another way after every third batch, and notes what it has found."""

    def __init__(self, says_so):
        super().__init__()
        self.reads_weights = says_so
        self.found = {}
        self.done = []

    def on_train_batch_end(self, batch, logs=None):
        self.done.append(_updates_done(self.model))
        if batch % 3 == 1:
            way = WAYS[batch // 3]
            self.found[way] = _WAYS[way](self.model)


def _saved(model):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        return _everything(keras.models.load_model(path))


def _saved_weights(model):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.weights.h5")
        model.save_weights(path)
        copy = keras.models.clone_model(model)
        copy.load_weights(path)
        return copy.get_weights()


def _exported(model):
    with tempfile.TemporaryDirectory() as folder:
        model.export(folder, verbose=False)
        exported = tf.saved_model.load(folder)
        return exported.serve(_data(4)[0].astype("int32")).numpy()


def _doubled(model):
    model.set_weights([2 * w for w in model.get_weights()])


def _slower(model):
    model.optimizer.learning_rate = float(model.optimizer.learning_rate) / 2


_WAYS = {
    "get_weights": lambda model: model.get_weights(),
    "weights": lambda model: [tf.convert_to_tensor(v).numpy() for v in model.weights],
    "optimizer": lambda model: [v.numpy() for v in model.optimizer.variables],
    "iterations": lambda model: int(model.optimizer.iterations),
    "evaluate": lambda model: model.evaluate(*_data(32), verbose=0),
    "test_on_batch": lambda model: model.test_on_batch(*_data(4)),
    "predict": lambda model: model.predict(_data(32)[0], verbose=0),
    "predict_on_batch": lambda model: model.predict_on_batch(_data(4)[0]),
    "call": lambda model: model(_data(4)[0], training=False).numpy(),
    "train_on_batch": lambda model: model.train_on_batch(*_data(4)),
    "save": _saved,
    "save_weights": _saved_weights,
    "export": _exported,
    "set_weights": _doubled,
    "learning rate": _slower,
}
WAYS = list(_WAYS)


def look(cross_step=True, says_so=False):
    keras.utils.set_random_seed(1)
    with bps.BytePSStrategy(cross_step=cross_step).scope():
        model = _model("momentum")
    looks = Looks(says_so)
    options = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "callbacks": [looks]}
    model.fit(*_data(3 * len(WAYS) * BATCH), **options)
    return {"found": looks.found, "done": looks.done, "weights": _everything(model)}


# What goes wrong.


def input_fails(cross_step=True, **compile_arguments):
    """The input of all workers raises an exception; then they train on."""
    keras.utils.set_random_seed(1)
    with bps.BytePSStrategy(cross_step=cross_step).scope():
        model = _model("momentum", **compile_arguments)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(_batches(fail_at=5), verbose=0)
            error = "none"
        except Exception as raised:
            error = str(raised)
        weights = [model.get_weights()]
        model.fit(_batches(), verbose=0)
    return {
        "error": error,
        "warnings": [str(w.message) for w in caught if "cross_step" in str(w.message)],
        "weights": [*weights, model.get_weights()],
    }


def step_fails():
    """A check in the forward pass fails on all workers.

    What the step had begun stays undone, on each worker something else: the job is at its end.
    """

    class Check(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.limit = self.add_weight(
                shape=(), initializer=keras.initializers.Constant(4.0), trainable=False
            )

        def call(self, x):
            # Not before the step has its data: until then nothing is lost.
            left = self.limit.value.assign_sub(1.0) + 0 * tf.reduce_sum(x)
            with tf.control_dependencies([tf.debugging.assert_positive(left, "enough")]):
                return tf.identity(x)

    with bps.BytePSStrategy(cross_step=True).scope():
        model = _model("momentum", [Check()])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(*_data(), batch_size=BATCH, verbose=0)
            error = "none"
        except tf.errors.OpError as raised:
            error = str(raised)
    return {
        "error": error,
        "warnings": [str(w.message) for w in caught if "cross_step" in str(w.message)],
    }


def compiled_step_fails():
    """In a step that XLA has compiled an exchange fails, on all workers; then they train on."""

    class Sums(keras.layers.Layer):
        """Its exchange fails where the workers have batches of different lengths."""

        def call(self, x):
            sums = bps.push_pull(tf.stop_gradient(x), op="sum", name="sums of rows")
            return x + 0.0 * tf.reduce_sum(sums)

    keras.utils.set_random_seed(1)
    with bps.BytePSStrategy(cross_step=True).scope():
        model = _model("momentum", [Sums()], jit_compile=True)
    errors = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            try:
                model.fit(*_data(4 * BATCH + 3), batch_size=BATCH, shuffle=False, verbose=0)
            except tf.errors.OpError as raised:
                errors.append(str(raised))
    model.fit(*_data(4 * BATCH), batch_size=BATCH, shuffle=False, verbose=0)
    return {
        "errors": errors,
        "warnings": [str(w.message) for w in caught if "cross_step" in str(w.message)],
        "weights": _everything(model),
        "updates": _updates_done(model),
    }


def worker_is_lost(**compile_arguments):
    with bps.BytePSStrategy(cross_step=True).scope():
        model = _model("momentum", **compile_arguments)
    x, y = _data()

    def generate():
        for step in range(20):
            if step == 8 and bps.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            yield x[:BATCH], y[:BATCH]

    spec = tf.TensorSpec([BATCH, 6], tf.int64), tf.TensorSpec([BATCH, 1], tf.float32)
    dataset = tf.data.Dataset.from_generator(generate, output_signature=spec)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(dataset.apply(tf.data.experimental.assert_cardinality(20)), verbose=0)
            error = "none"
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
    return {
        "error": error,
        "warnings": [str(w.message) for w in caught if "cross_step" in str(w.message)],
    }


def wrong_order():
    """Messages of the operations when they are used in a wrong order."""
    bps.init()
    ones = tf.ones([3])
    messages = []

    def note(function):
        try:
            function()
            messages.append("none")
        except tf.errors.OpError as error:
            messages.append(error.message)

    def start(value, name):
        return split.start_reductions([value], [name], [value.shape], Reduction(bps.Sum))[0]

    sums = start(ones, "order")
    note(lambda: start(ones, "order"))
    results = [sums.wait().numpy().tolist()]
    note(sums.wait)
    start(2 * ones, "order")
    split.forget(["order", "nothing in flight"])
    note(sums.wait)
    bps.push_pull(ones[0], name="all have the forgotten sum")
    results.append(start(3 * ones, "order").wait().numpy().tolist())
    start(ones, "types")
    wait = functools.partial(kernels().byte_ps_wait, token("types"), [], tensor_name="types")
    note(lambda: wait(T=tf.int32, shape=[3]))
    return {"messages": messages, "results": results}


# The next step begins before the last one's exchanges have ended.


class First(keras.layers.Layer):
    """Tells worker 1 that worker 0 has computed the first layer, in all steps but the first."""

    def build(self, shape):
        self.steps = self.add_weight(shape=(), dtype="int32", trainable=False)

    def call(self, x):
        if bps.rank() == 0:
            step = self.steps.value.assign_add(1)
            computed = 0 * tf.reduce_sum(x)
            tf.cond(step > 1, lambda: _passed(computed), lambda: computed)
        return x


class Last(keras.layers.Layer):
    """Worker 1 gives its gradient of the kernel away when it has been told: in the same step, in
    all but the last."""

    def __init__(self, last):
        super().__init__()
        self.last = last

    def build(self, shape):
        self.steps = self.add_weight(shape=(), dtype="int32", trainable=False)
        self.kernel = self.add_weight(shape=(shape[-1], 1), name="kernel")

    def call(self, x):
        step = self.steps.value.assign_add(1)

        @tf.custom_gradient
        def late(kernel):
            def gradient(upstream):
                if bps.rank() == 0:
                    return upstream
                one = tf.constant(1.0)
                reported = tf.cond(step < self.last, lambda: _passed(one), lambda: one)
                return upstream + 0 * reported

            return tf.identity(kernel), gradient

        return tf.matmul(x, late(tf.convert_to_tensor(self.kernel)))


def _passed(value):
    return bps.push_pull(value, op=bps.Sum, name="passed")


def overtake(steps, cross_step=True):
    """In every step worker 1 waits with its last layer's gradient until worker 0 has computed the
    first layer of the next step. With plain steps that never comes.

    Returns:
        For each step of worker 0: when "passed" entered the engine, and when the sum of the step
        before was there; nanoseconds.
    """
    with bps.BytePSStrategy(cross_step=cross_step).scope():
        model = keras.Sequential(
            [keras.Input([6]), keras.layers.Dense(8), First(), keras.layers.Dense(8), Last(steps)]
        )
        model.compile(keras.optimizers.SGD(0.01), "mse")
    x, y = (np.asarray(v, "float32") for v in _data(steps * BATCH))
    with tempfile.TemporaryDirectory() as folder:
        bps.start_timeline(folder)
        model.fit(x, y, batch_size=BATCH, verbose=0)
        parts = timeline.read(bps.stop_timeline())
    kernel = f"gradient/{model.layers[-1].kernel.path}"
    passed = [part.enqueued for part in parts if part.tensor == "passed"]
    summed = [part.done for part in parts if part.tensor == kernel]
    return {"passed": sorted(passed), "summed": sorted(summed)}
