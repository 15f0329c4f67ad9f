"""What the workers of test_start_scheduling.py do: training steps of Keras on JAX.

Each training is done twice: as it is, and by a step whose exchanges all start at its end.
"""

import contextlib
import re

import jax
import jax.numpy as jnp
import keras
import numpy as np

import tf_byteps
from tf_byteps.strategy.jax import start_scheduling, steps

_WIDTH = 512
_ROWS = 17  # batches of 8, 8 and 1: the last leaves a worker without rows


def start():
    return None


class _Dense(keras.Model):
    """A table, three layers of which one is used twice, and a small one, with biases."""

    def __init__(self, rows=2**9):
        super().__init__()
        self.table = keras.layers.Embedding(rows, _WIDTH)
        self.hidden = [keras.layers.Dense(_WIDTH, "tanh", name=f"hidden_{i}") for i in range(3)]
        self.hidden[1].kernel_regularizer = keras.regularizers.L2(0.1)
        self.out = keras.layers.Dense(10, name="out")

    def call(self, x):
        y = self.table(x)
        for layer in [*self.hidden, self.hidden[2]]:
            y = layer(y)
        return self.out(keras.ops.mean(y, axis=1))


class _Clips(_Dense):
    """A step that clips the gradients by the norm of all, before the optimizer gets them."""

    def train_step(self, state, data):
        trainable, non_trainable, optimizer, metrics = state
        x, y = data[:2]

        def loss(trainable):
            logits, _ = self.stateless_call(trainable, non_trainable, x)
            losses = keras.ops.sparse_categorical_crossentropy(y, logits, from_logits=True)
            return jnp.mean(losses)

        gradients = jax.grad(loss)(trainable)
        norm = jnp.sqrt(sum(jnp.sum(gradient**2) for gradient in gradients))
        gradients = [gradient / jnp.maximum(norm, 1) for gradient in gradients]
        trainable, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trainable)
        return {"norm": norm}, (trainable, non_trainable, optimizer, metrics)


def _convolutions():
    filters = 176  # 3 x 3 x 176 x 176 elements
    return keras.Sequential(
        [
            keras.layers.Conv2D(filters, 3, activation="relu", padding="same"),
            keras.layers.Conv2D(filters, 3, use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.Activation("relu"),
            keras.layers.Conv2D(filters, 3, padding="same"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ]
    )


def _words(rows=_ROWS):
    return np.random.default_rng(3).integers(0, 2**9, (rows, 4)), np.arange(rows) % 10


def _compiled(make, optimizer="sgd", compression="none", **options):
    keras.utils.set_random_seed(7)
    strategy = tf_byteps.BytePSStrategy(compression=compression)
    with strategy.scope():
        model = make()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer() if callable(optimizer) else optimizer, loss, **options)
    return model


@contextlib.contextmanager
def _at_the_end():
    """Within it, steps are made that start all exchanges at their end."""
    original = start_scheduling.started_first
    start_scheduling.started_first = lambda step: step
    try:
        yield
    finally:
        start_scheduling.started_first = original


def _both(x, y, make, **options):
    """The losses and the weights of the two trainings, and how much of their steps starts early."""
    found = []
    for context in (contextlib.nullcontext(), _at_the_end()):
        with context:
            model = _compiled(make, **options)
            history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
        found.append((history.history, [np.asarray(each) for each in model.get_weights()]))
    return found


def dense():
    """Gradients that are accumulated and clipped, several steps in one execution."""
    return _both(
        *_words(),
        _Dense,
        optimizer=lambda: keras.optimizers.SGD(
            0.1, global_clipnorm=0.5, gradient_accumulation_steps=2
        ),
        steps_per_execution=2,
    )


def own_step():
    return _both(*_words(), _Clips)


def compressed():
    """Of which the small gradients are exchanged by an operation of their own."""
    return _both(*_words(), _Dense, compression=lambda v: "bf16" if "kernel" in v.path else "none")


def convolutions():
    x = np.random.default_rng(3).normal(size=(_ROWS, 6, 6, 8)).astype(np.float32)
    return _both(x, _words()[1], _convolutions)


def _step_of(model, x, y, rows, every):
    """The program of one training step, as text of HLO in the order in which it runs."""
    model.fit(x, y, batch_size=len(x), verbose=0)  # makes the variables
    state = model._get_jax_state(
        trainable_variables=True,
        non_trainable_variables=True,
        optimizer_variables=True,
        metrics_variables=True,
    )
    step = start_scheduling.started_first(model.train_step)
    marked = steps.Marked((x[: max(rows, 1)], y[: max(rows, 1)]), np.zeros([every, rows, 0], bool))
    lowered = jax.jit(steps.traced(model, step, is_training=True)).lower(state, marked)
    text = lowered.compile().as_text()
    return text[text.index("\nENTRY") :]


def _perceptron():
    return keras.Sequential(
        [
            keras.Input([_WIDTH]),
            *[keras.layers.Dense(_WIDTH, "relu", name=f"layer_{i}") for i in range(3)],
            keras.layers.Dense(10, name="layer_3"),
        ]
    )


def order(rows=8):
    """What a step does in its order: products of backpropagation, starts with their names, and the
    first end. Of a product one knows its shape."""
    model = _compiled(_perceptron)
    x = np.random.default_rng(3).normal(size=(16, _WIDTH)).astype(np.float32)
    found = []
    for line in _step_of(model, x, np.arange(16) % 10, rows, 16).splitlines():
        call = re.search(r'custom_call_target="byteps_(start|done)"', line)
        if call:
            names = re.search(r'names = "([0-9a-f.]*)"', line)[1].split(".")
            short = [re.sub("^gradient/", "", bytes.fromhex(name).decode()) for name in names]
            found.append((call[1], short))
        elif "transpose(jvp" in line and "dot_general" in line:
            shape = re.search(r"f32\[([\d,]*)\]", line)[1]
            found.append(("product", "weights" if shape == f"{_WIDTH},{_WIDTH}" else shape))
    return found
