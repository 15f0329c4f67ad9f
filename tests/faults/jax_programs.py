"""What the workers of jax_kills.py do: compiled steps of JAX, alone and in `fit`."""

import hashlib

import numpy as np

import tf_byteps as bps
from tf_byteps.errors import ExchangeError

_ROWS = 1797
_BATCH = 60


def train(how, steps):
    """Trains for so many steps; deterministic.

    Args:
        how: "loop" or "fit".
        steps: of the training.

    Returns:
        A digest of the final weights.
    """
    weights = _LOOPS[how](steps, lambda: None)
    bps.shutdown()
    return _digest(weights)


def until_a_fault(how):
    """Trains for longer than the test waits.

    Returns:
        The error's sentence and its code, who was lost, and whether the weights can be read.
    """
    seen = []
    try:
        _LOOPS[how](1_000_000, lambda: seen.append(1))
    except ExchangeError as error:
        lost = bps.lost_process()
        can_read = how == "loop" or bool(_read)
        bps.shutdown()
        return [str(error), error.code, lost.role, lost.rank, can_read]
    return None


_read = []  # weights of a model whose `fit` has failed


def _loop(steps, note):
    import jax
    import jax.numpy as jnp

    bps.init()
    random = np.random.default_rng(1)
    x, y = random.normal(size=(_ROWS, 64)).astype("float32"), random.normal(size=_ROWS)
    sizes = [(64, 128), (128,), (128, 64), (64,)]
    weights = [jnp.asarray(random.normal(size=each) / 8, "float32") for each in sizes]

    def loss_of(weights, x, y):
        hidden = jnp.tanh(jnp.tanh(x @ weights[0] + weights[1]) @ weights[2])
        return jnp.mean((hidden @ weights[3] - y) ** 2)

    @jax.jit
    def step(weights, x, y):
        gradients = bps.jax.push_pull_tree(jax.grad(loss_of)(weights, x, y), name="gradients")
        return [weight - 0.05 * gradient for weight, gradient in zip(weights, gradients)]

    with bps.jax.exchange_errors():
        for number in range(steps):
            rows = np.arange(_BATCH) + number * _BATCH
            mine = np.array_split(rows % _ROWS, bps.size())[bps.rank()]
            weights = jax.block_until_ready(step(weights, x[mine], y[mine].astype("float32")))
            note()
            print(f"step {number}.", flush=True)
    return weights


def _fit(steps, note):
    import keras

    keras.utils.set_random_seed(1)
    with bps.BytePSStrategy().scope():
        layers = [keras.Input([64]), keras.layers.Dense(128, "relu"), keras.layers.Dense(64)]
        model = keras.Sequential([*layers, keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, jit_compile=True)
    random = np.random.default_rng(1)
    x, y = random.normal(size=(_ROWS, 64)).astype("float32"), random.integers(0, 10, size=_ROWS)
    done = 0

    class Progress(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            nonlocal done
            note()
            print(f"step {done}.", flush=True)
            done += 1
            if done == steps:
                self.model.stop_training = True

    try:
        model.fit(x, y, _BATCH, epochs=steps, shuffle=False, verbose=0, callbacks=[Progress()])
    except ExchangeError:
        _read.extend(model.get_weights())  # those with which the epoch began
        raise
    return model.get_weights()


_LOOPS = {"loop": _loop, "fit": _fit}


def _digest(weights):
    return hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in weights)).hexdigest()
