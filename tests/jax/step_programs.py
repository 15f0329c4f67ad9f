"""Training steps and optimizers that do something with gradients: what keras_programs.py runs.

Each has a batch that cannot be cut evenly, and begins with other weights on other workers.
"""

import jax
import jax.numpy as jnp
import keras
import numpy as np

import tf_byteps
from tf_byteps import _engine


def _strategy():
    strategy = tf_byteps.BytePSStrategy()
    keras.utils.set_random_seed(7 + tf_byteps.rank())
    return strategy


def _data():
    """A batch of 12 rows and one of 11, of which the first of two workers gets as many."""
    x = np.random.default_rng(5).normal(size=(23, 6))
    return x, x[:, :3].argmax(axis=1)


def _facts(model, history):
    weights = [np.asarray(weight) for weight in model.get_weights()]
    return {"history": history.history, "weights": weights}


def _norm(gradients):
    return jnp.sqrt(sum(jnp.sum(gradient**2) for gradient in gradients))


def _clipped(gradients, limit=0.1):
    factor = limit / jnp.maximum(_norm(gradients), limit)
    return [gradient * factor for gradient in gradients]


class _Own(keras.Model):
    """`gradients` says what a step hands to the optimizer, and what it logs."""

    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(8, "relu", kernel_regularizer="l2")
        self.out = keras.layers.Dense(3)

    def call(self, x):
        return self.out(self.hidden(x))

    def losses_of(self, trainable, non_trainable, x, y):
        logits, _ = self.stateless_call(trainable, non_trainable, x)
        return keras.ops.sparse_categorical_crossentropy(y, logits, from_logits=True)

    def mean_loss(self, *arguments):
        return jnp.mean(self.losses_of(*arguments))

    def gradients(self, trainable, non_trainable, x, y):
        raise NotImplementedError

    def train_step(self, state, data):
        trainable, non_trainable, optimizer, metrics = state
        gradients, number = self.gradients(trainable, non_trainable, *data[:2])
        trainable, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trainable)
        return {"number": number}, (trainable, non_trainable, optimizer, metrics)


class Clips(_Own):
    """By the norm of all."""

    def gradients(self, *arguments):
        found = jax.grad(self.mean_loss)(*arguments)
        return _clipped(found), _norm(found)


class ClipsOfKeras(keras.Sequential):
    """As Keras's own step, with the model's loss, metrics and sample weights; clipped."""

    def __init__(self):
        super().__init__([keras.layers.Dense(8, "relu"), keras.layers.Dense(3, "softmax")])

    def train_step(self, state, data):
        trainable, non_trainable, optimizer, metrics = state
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        call = jax.value_and_grad(self.compute_loss_and_updates, has_aux=True)
        (_, (loss, outputs, non_trainable, metrics)), gradients = call(
            trainable,
            non_trainable,
            metrics,
            x,
            y,
            weights,
            training=True,
            optimizer_variables=optimizer,
        )
        trainable, optimizer = self.optimizer.stateless_apply(
            optimizer, _clipped(gradients), trainable
        )
        logs, metrics = self._update_metrics_variables(metrics, loss, x, y, outputs, weights)
        return logs, (trainable, non_trainable, optimizer, metrics)


class Logs(_Own):
    """Hands gradients on as they are."""

    def gradients(self, *arguments):
        found = jax.grad(self.mean_loss)(*arguments)
        return found, _norm(found)


class Twice(_Own):
    """The weights are read twice, and once more by hand."""

    def gradients(self, *arguments):
        def loss(trainable, non_trainable, x, y):
            first = self.mean_loss(trainable, non_trainable, x, y)
            second = self.mean_loss(trainable, non_trainable, x[:, ::-1], y)
            return first + second + 0.1 * jnp.sum(trainable[0] ** 2)

        found = jax.grad(loss)(*arguments)
        return _clipped(found), _norm(found)


class Augments(_Own):
    """The weights are read twice."""

    def gradients(self, trainable, non_trainable, x, y):
        def loss(trainable):
            first = self.mean_loss(trainable, non_trainable, x, y)
            return first + self.mean_loss(trainable, non_trainable, x[:, ::-1], y)

        return jax.grad(loss)(trainable), jnp.zeros([])


class Jitted(_Own):
    """A function that is jitted by itself, whose rows of all workers change and own ones do not."""

    def gradients(self, trainable, non_trainable, x, y):
        found = self.jitted(trainable, non_trainable, x, y)
        return _clipped(found), _norm(found)

    @property
    def jitted(self):
        if "_jitted" not in self.__dict__:
            self.__dict__["_jitted"] = jax.jit(jax.grad(self.mean_loss))
        return self.__dict__["_jitted"]


class Steps(_Own):
    """Up along the gradient and down again: the gradient of another place (SAM)."""

    def gradients(self, trainable, *others):
        found = jax.grad(self.mean_loss)(trainable, *others)
        scale = 0.05 / _norm(found)
        above = [value + scale * gradient for value, gradient in zip(trainable, found)]
        return jax.grad(self.mean_loss)(above, *others), _norm(found)


class Learns(_Own):
    """The gradient through a step of gradient descent."""

    def gradients(self, trainable, *others):
        def after_a_step(trainable):
            found = jax.grad(self.mean_loss)(trainable, *others)
            moved = [value - 0.3 * gradient for value, gradient in zip(trainable, found)]
            return self.mean_loss(moved, *others)

        found = jax.grad(after_a_step)(trainable)
        return _clipped(found), _norm(found)


class Scans(_Own):
    """Weights that a loop reads, and recomputation."""

    def gradients(self, trainable, non_trainable, x, y):
        def loss(trainable):
            def body(total, shift):
                losses = self.losses_of(trainable, non_trainable, x + shift, y)
                return total + jnp.mean(losses), None

            total, _ = jax.lax.scan(jax.checkpoint(body), 0.0, jnp.arange(3) / 10)
            return total

        found = jax.grad(loss)(trainable)
        return _clipped(found), _norm(found)


class ForEachRow(_Own):
    """The gradients of single rows, each clipped (as for differential privacy)."""

    def gradients(self, trainable, non_trainable, x, y):
        def of_row(x, y):
            found = jax.grad(self.mean_loss)(trainable, non_trainable, x[None], y[None])
            return _clipped(found)

        of_rows = jax.vmap(of_row)(x, y)
        return [jnp.mean(gradient, axis=0) for gradient in of_rows], jnp.zeros([])


class Forward(_Own):
    """A directional derivative, and the gradient of one."""

    def _loss_at(self, others, trainable):
        return self.mean_loss(trainable, *others)

    def gradients(self, trainable, *others):
        def along(trainable):
            tangents = [jnp.ones_like(value) for value in trainable]
            return jax.jvp(
                lambda values: self.mean_loss(values, *others), (trainable,), (tangents,)
            )[1]

        found = jax.grad(along)(trainable)
        return _clipped(found), _norm(found)


class Penalty(_Own):
    """The gradient of a gradient by the input."""

    def gradients(self, trainable, non_trainable, x, y):
        def loss(trainable):
            def of_input(x):
                return jnp.sum(self.losses_of(trainable, non_trainable, x, y))

            slopes = jax.grad(of_input)(x)
            return self.mean_loss(trainable, non_trainable, x, y) + jnp.mean(slopes**2)

        found = jax.grad(loss)(trainable)
        return _clipped(found), _norm(found)


class Sign(keras.optimizers.SGD):
    """Changes gradients where Keras's guides say so."""

    def apply(self, grads, trainable_variables=None):
        return super().apply([keras.ops.sign(each) for each in grads], trainable_variables)


class Centralized(keras.optimizers.Adam):
    """Changes them before anything else sees them."""

    def stateless_apply(self, optimizer_variables, grads, trainable_variables):
        centered = [
            each - jnp.mean(each, axis=tuple(range(each.ndim - 1)), keepdims=True)
            if each.ndim > 1
            else each
            for each in _clipped(grads)
        ]
        return super().stateless_apply(optimizer_variables, centered, trainable_variables)


KINDS = [Clips, ClipsOfKeras, Logs, Twice, Jitted, Steps, Learns, Scans, Forward, Penalty]
KINDS += [ForEachRow]


def own_steps(names=()):
    """{class: what its training showed}, of all `KINDS` or of some."""
    x, y = _data()
    results = {}
    for kind in [kind for kind in KINDS if not names or kind.__name__ in names]:
        with _strategy().scope():
            model = kind()
            model.compile(keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy")
        reported = model.fit(x, y, batch_size=12, epochs=2, shuffle=False, verbose=0)
        results[kind.__name__] = _facts(model, reported)
    return results


def own_optimizers():
    """{class: what its training showed}."""
    x, y = _data()
    results = {}
    for optimizer in (Centralized(0.05), Sign(0.01, global_clipnorm=0.01)):
        with _strategy().scope():
            model = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(3)])
            model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        reported = model.fit(x, y, batch_size=12, epochs=2, shuffle=False, verbose=0)
        results[type(optimizer).__name__] = _facts(model, reported)
    return results


def exchanged():
    """{class: how often a step has sent its gradients}."""
    x, y = _data()
    counts = {}
    for kind in (None, Augments, Clips):
        with _strategy().scope():
            model = kind() if kind else keras.Sequential([keras.layers.Dense(3, "softmax")])
            model.compile("sgd", "sparse_categorical_crossentropy")
        wide = np.tile(x[:12], 2000)
        model.train_on_batch(wide, y[:12])
        before = _engine.worker_counters()["pushed_bytes"]
        model.train_on_batch(wide, y[:12])
        sent = _engine.worker_counters()["pushed_bytes"] - before
        largest = max(np.asarray(weights).nbytes for weights in model.get_weights())
        counts[kind.__name__ if kind else "Keras"] = sent // largest
    return counts


def at_once():
    """A training that nothing compiles as a whole, with a function that is jitted by itself."""
    x, y = _data()
    with _strategy().scope():
        model = Jitted()
        model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
    return _facts(model, model.fit(x, y, batch_size=12, epochs=2, shuffle=False, verbose=0))


def compiled_at_once():
    """How many functions the first and the second training compile, whose steps run at once."""
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
    )
    x, y = _data()
    with _strategy().scope():
        dropout = keras.layers.Dropout(0.5, seed=3)
        model = keras.Sequential([dropout, keras.layers.Dense(3, "softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
    counts = []
    for _ in range(2):
        before = len(compiled)
        model.fit(x, y, batch_size=12, shuffle=False, verbose=0)
        counts.append(len(compiled) - before)
    return counts
