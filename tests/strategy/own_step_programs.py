"""Models whose classes have steps of their own, in the forms in which such examples are written."""

import http.server
import logging
import threading

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.gpu_in_sight import gpu_in_sight

_ROWS = np.random.default_rng(0).normal(size=[40, 6]).astype("float32")


def _strategy():
    strategy = bps.BytePSStrategy()
    keras.utils.set_random_seed(7)  # for the order of rows
    return strategy


def _own_values():
    """From here each worker draws weights of its own."""
    keras.utils.set_random_seed(100 + bps.rank())


def _weights(variables):
    return [np.asarray(variable).tolist() for variable in variables]


class Autoencoder(keras.Model):
    """Has no `call`."""

    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([keras.Input([6]), keras.layers.Dense(2)])
        self.decoder = keras.Sequential([keras.Input([2]), keras.layers.Dense(6)])
        self.tracker = keras.metrics.Mean(name="reconstruction")
        self.traces = 0

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, data):
        self.traces += 1
        with tf.GradientTape() as tape:
            restored = self.decoder(self.encoder(data))
            loss = tf.reduce_mean(keras.losses.mean_squared_error(data, restored))
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


def autoencoder():
    with _strategy().scope():
        _own_values()
        model = Autoencoder()
        model.compile(optimizer=keras.optimizers.Adam(0.01))
    before = _weights(model.trainable_weights)
    history = model.fit(_ROWS, batch_size=10, epochs=2, shuffle=False, verbose=0)
    after = _weights(model.trainable_weights)
    shown = {"moved": before != after, "logs": sorted(history.history), "traces": model.traces}
    return {"weights": after, **shown}


class Gan(keras.Model):
    """Two optimizers of its own, no `call`; nothing is built before the first step."""

    def __init__(self):
        super().__init__()
        self.generator = keras.Sequential([keras.layers.Dense(4, "relu"), keras.layers.Dense(6)])
        self.critic = keras.Sequential([keras.layers.Dense(4, "relu"), keras.layers.Dense(1)])

    def compile(self, critic_optimizer, generator_optimizer):
        super().compile()
        self.critic_optimizer = critic_optimizer
        self.generator_optimizer = generator_optimizer

    def train_step(self, real):
        noise = real[:, :3]
        with tf.GradientTape() as tape:
            made = self.generator(noise)
            loss = tf.reduce_mean(self.critic(made)) - tf.reduce_mean(self.critic(real))
        variables = self.critic.trainable_weights
        self.critic_optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(self.critic(self.generator(noise)))
        variables = self.generator.trainable_weights
        self.generator_optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return {"loss": loss}


def gan():
    with _strategy().scope():
        _own_values()
        model = Gan()
        model.compile(keras.optimizers.Adam(0.01), keras.optimizers.RMSprop(0.01))
    model.fit(_ROWS, batch_size=10, epochs=2, shuffle=False, verbose=0)
    return {"weights": _weights(model.trainable_weights)}


class Distiller(keras.Model):
    """Compiled metrics, whose form only the step knows; a `test_step` of its own, too."""

    def __init__(self, student, teacher):
        super().__init__()
        self.student, self.teacher = student, teacher

    def compile(self, optimizer, metrics, student_loss, distillation_loss):
        super().compile(optimizer=optimizer, metrics=metrics)
        self.student_loss, self.distillation_loss = student_loss, distillation_loss

    def train_step(self, data):
        x, y = data
        wanted = self.teacher(x, training=False)
        with tf.GradientTape() as tape:
            predicted = self.student(x, training=True)
            loss = self.student_loss(y, predicted) + self.distillation_loss(wanted, predicted)
        variables = self.student.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return {**self.compute_metrics(x, y, predicted), "loss": loss}

    def test_step(self, data):
        x, y = data
        return self.compute_metrics(x, y, self.student(x, training=False))


def distiller():
    """The last batch has a row for worker 0 only, which no metric may count twice."""
    labels = (_ROWS[:, 0] > 0).astype("int32")
    with _strategy().scope():
        _own_values()
        student, teacher = (
            keras.Sequential([keras.Input([6]), keras.layers.Dense(width), keras.layers.Dense(2)])
            for width in (3, 5)
        )
        model = Distiller(student, teacher)
        model.compile(
            keras.optimizers.SGD(0.1),
            [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            keras.losses.MeanSquaredError(),
        )
    model.fit(_ROWS[:31], labels[:31], batch_size=10, epochs=2, shuffle=False, verbose=0)
    found = model.evaluate(_ROWS[:31], labels[:31], batch_size=10, verbose=0, return_dict=True)
    classes = student.predict(_ROWS[:31], verbose=0).argmax(1)
    return {
        "weights": _weights(student.trainable_weights),
        "accuracy": found["accuracy"],
        "expected": float(np.mean(classes == labels[:31])),
    }


class Contrastive(keras.Model):
    """Its `call` leaves out a layer that the step uses."""

    def __init__(self):
        super().__init__()
        self.encoder, self.head = keras.layers.Dense(4), keras.layers.Dense(3)

    def call(self, x):
        return self.encoder(x)

    def train_step(self, data):
        x = keras.utils.unpack_x_y_sample_weight(data)[0]
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.head(self(x)) ** 2)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        return {"loss": loss}


def contrastive():
    with _strategy().scope():
        _own_values()
        model = Contrastive()
        model.compile(optimizer=keras.optimizers.SGD(0.1))
    model.train_on_batch(_ROWS[:10])
    model.fit(_ROWS, batch_size=10, shuffle=False, verbose=0)
    return {"weights": _weights(model.trainable_weights)}


class Summed(keras.Model):
    """Asks for the gradient of a tensor of losses."""

    def __init__(self, process):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.process = process

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            losses = tf.reduce_mean(self(data) ** 2, -1)
        gradients = tape.gradient(losses, self.trainable_variables)
        rows = tf.cast(tf.shape(losses)[0], losses.dtype)
        gradients = [self.process(gradient, rows) for gradient in gradients]
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {}


def tensor_of_losses():
    """What steps are told that divide its gradient by the worker's rows, as one may in one process;
    or the weights. 40 rows in batches of 20: pieces of 10."""
    steps = {
        "divided": lambda gradient, rows: gradient / rows,
        "divided with NumPy's number": lambda gradient, rows: tf.divide(gradient, 10),
        "divided and clipped": lambda gradient, rows: tf.clip_by_norm(gradient / rows, 0.1),
        "divided by all rows": lambda gradient, rows: gradient / 20,
        "as it is": lambda gradient, rows: gradient,
    }
    results = {}
    for eager in (False, True):
        for name, process in steps.items():
            with _strategy().scope():
                model = Summed(process)
                model.compile(keras.optimizers.SGD(0.001), run_eagerly=eager)
            try:
                model.fit(_ROWS, batch_size=20, verbose=0)
                results[name, eager] = _weights(model.trainable_weights)
            except ValueError as error:
                results[name, eager] = str(error)
    return results


class Noting(keras.Model):
    """Its step wants numbers, for which it must run eagerly."""

    def train_step(self, data):
        self.rows += data[0][:, 0].numpy().tolist()
        return super().train_step(data)


def eager_step_that_wants_numbers():
    """The rows that it has seen. Only what `compile` was given is not built before it."""
    with _strategy().scope():
        inputs = keras.Input([6])
        model = Noting(inputs, keras.layers.Dense(1)(inputs))
        model.compile("adam", "mse", metrics=["mae"], run_eagerly=True)
    model.rows = []
    history = model.fit(_ROWS, _ROWS[:, :1], batch_size=8, shuffle=False, verbose=0).history
    return {"rows": list(model.rows), "logs": history, "weights": _weights(model.weights)}


class Branching(keras.Model):
    """Updates in a branch, or a loop, by its own rows."""

    def __init__(self, update):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.update = update

    def call(self, x):
        return self.dense(x)

    def apply_once(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(x) ** 2)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    def train_step(self, data):
        return {"seen": self.update(self, data)}


def _if_positive(model, x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: model.apply_once(x), lambda: 0.0)


def _while_large(model, x):
    condition = lambda loss: tf.reduce_sum(x) + 0.0 * loss > 0  # noqa: E731
    return tf.while_loop(condition, lambda _: model.apply_once(x), [0.0], maximum_iterations=2)


def _for_each_row(model, x):
    """A counter whose end is a worker's own."""
    end = tf.cast(tf.reduce_sum(x) > 0, tf.int32)
    return tf.while_loop(lambda i: i < end, lambda i: _counted(model, x, i), [0])[0]


def _by_own_steps(model, x):
    """A counter that begins alike, and grows by what is a worker's own."""
    step = 1 + tf.cast(tf.reduce_sum(x) > 0, tf.int32)
    return tf.while_loop(lambda i: i < 2, lambda i: _counted(model, x, i, step), [0])[0]


def _twice(model, x):
    return tf.while_loop(lambda i: i < 2, lambda i: _counted(model, x, i), [0])[0]


def _counted(model, x, i, step=1):
    with tf.control_dependencies([model.apply_once(x)]):
        return i + step


_UPDATES = {
    "if": _if_positive,
    "while": _while_large,
    "for": _for_each_row,
    "own steps": _by_own_steps,
    "twice": _twice,
}


def updates_in_branches(all_kinds=False):
    """What steps are told whose workers part in branches and loops, or the weights. Worker 0's rows
    are positive, the others' are not."""
    parting = np.concatenate([np.ones([10, 6]), -np.ones([10, 6])]).astype("float32")
    together = np.abs(_ROWS[:20])
    cases = [(name, "parting", parting, {}) for name in ("while", "twice")]
    if all_kinds:
        cases = [(name, "parting", parting, {}) for name in _UPDATES]
        cases += [("while", "together", together, {})]
        cases += [(each, "compiled", parting, {"jit_compile": True}) for each in ("if", "twice")]
    results = {}
    for name, how, rows, options in cases:
        with _strategy().scope():
            model = Branching(_UPDATES[name])
            model.compile(keras.optimizers.SGD(0.01), **options)
        try:
            model.fit(rows, batch_size=20, shuffle=False, verbose=0)
            results[name, how] = _weights(model.trainable_weights)
        except (ValueError, tf.errors.InvalidArgumentError) as error:
            said = [line for line in str(error).splitlines() if "update" in line][-1]
            results[name, how] = f"{type(error).__name__}: {said}"
    return results


def updates_in_branches_of_a_loop():
    """What is said of them in `strategy.run`; all workers take the same ones."""
    strategy = _strategy()
    with strategy.scope():
        model = Branching(None)
        model.build([None, 6])
        model.compile(keras.optimizers.SGD(0.01))

    @tf.function
    def step(x):
        for update in (_if_positive, _while_large, _twice):
            strategy.run(update, args=(model, x))

    return _said(lambda: step(tf.constant(np.abs(_ROWS[:4]))))


def _said(call):
    """What a call logs."""
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("tf_byteps").addHandler(handler)
    call()
    logging.getLogger("tf_byteps").removeHandler(handler)
    return said


def wrong_input():
    """A model without a step of its own: Keras's error stays.

    Returns:
        What fit raises with this strategy and with one of TensorFlow's: an error's kind, which
        depends on the version of Keras, and whether it says what was expected.
    """
    raised = []
    for strategy in (_strategy(), tf.distribute.OneDeviceStrategy("/cpu:0")):
        with strategy.scope():
            model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        try:
            model.fit(_ROWS, _ROWS[:, :1], batch_size=10, verbose=0)
        except Exception as error:
            raised.append([type(error).__name__, "expected" in str(error)])
    return raised


def layers_built_in_a_loop():
    """In a loop of the user's own the first step is traced before there is any weight."""
    strategy = _strategy()
    with strategy.scope():
        _own_values()
        model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)

    @tf.function
    def step(x):
        def replica(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x) ** 2) / strategy.num_replicas_in_sync
            gradients = tape.gradient(loss, model.trainable_weights)
            optimizer.apply_gradients(zip(gradients, model.trainable_weights))

        strategy.run(replica, args=(x,))

    for _ in range(3):
        step(tf.constant(_ROWS[bps.rank() :: bps.size()][:10]))
    return {"weights": _weights(model.trainable_weights)}


def forgotten_scope():
    """What is said of models that train alone: one that forgot the scope, one that need not."""
    _strategy()

    def train():
        for optimizer in ("sgd", bps.DistributedOptimizer(keras.optimizers.SGD())):
            model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)], name="lonely")
            model.compile(optimizer, "mse")
            for _ in range(2):
                model.fit(_ROWS, _ROWS[:, :1], batch_size=20, verbose=0)

    return _said(train)


def remote_monitor():
    """How many logs of 2 epochs this worker has sent."""
    received = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            received.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with _strategy().scope():
            model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        monitor = keras.callbacks.RemoteMonitor(f"http://127.0.0.1:{server.server_port}")
        model.fit(_ROWS, _ROWS[:, :1], batch_size=20, epochs=2, callbacks=[monitor], verbose=0)
        server.shutdown()
        thread.join()
    return len(received)


def loop_without_state():
    """The plainest loop there is: nothing but variables changes in it."""
    strategy = _strategy()
    with strategy.scope():
        total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)
        steps = tf.Variable(0, dtype=tf.int64)
    dataset = strategy.experimental_distribute_dataset(tf.data.Dataset.range(20).batch(6))

    def replica(batch):
        total.assign_add(tf.reduce_sum(tf.cast(batch, tf.float32)))
        steps.assign_add(1)

    @tf.function
    def epoch():
        for batch in dataset:
            strategy.run(replica, args=(batch,))

    epoch()
    return {"total": float(total), "steps": int(steps)}


def lengths_that_differ():
    """Every worker draws for itself which rows it keeps, or has a generator of its own length."""
    strategy = _strategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    _own_values()  # and random numbers of the pipelines

    def some(rows, target):
        return tf.random.uniform([]) < 0.5

    filtered = tf.data.Dataset.from_tensor_slices((_ROWS, _ROWS[:, :1])).filter(some).batch(4)

    def generator():
        for _ in range(5 + 2 * bps.rank()):
            yield _ROWS[:4], _ROWS[:4, :1]

    spec = tf.RaggedTensorSpec([None, None], tf.int64)
    ragged = tf.data.Dataset.from_generator(
        lambda: (tf.ragged.constant([[1], [2, 3]], tf.int64) for _ in range(2 + bps.rank())),
        output_signature=spec,
    )
    tf.random.set_seed(7)
    for data in (filtered, filtered, generator()):
        model.fit(data, verbose=0)
    model.evaluate(filtered, verbose=0)
    steps = int(model.optimizer.iterations.numpy())
    ragged_rows = [int(b.nrows()) for b in strategy.experimental_distribute_dataset(ragged)]
    return {"weights": _weights(model.weights), "steps": steps, "ragged": ragged_rows}


def compiled_outside_on_a_gpu_machine():
    """Where Keras sees a GPU it chooses XLA for what is compiled outside any strategy; it stays."""
    with gpu_in_sight():
        strategy = _strategy()
        models = []
        for options in ({}, {"jit_compile": False}):
            model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
            model.compile("sgd", "mse", **options)
            models.append(model)
    before = [model.jit_compile for model in models]
    with strategy.scope():
        models[0].fit(_ROWS, _ROWS[:, :1], batch_size=10, verbose=0)
        models[1]._maybe_symbolic_build(data_batch=(_ROWS, _ROWS[:, :1]))
    return before, [model.jit_compile for model in models]
