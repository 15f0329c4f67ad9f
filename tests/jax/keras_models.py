"""Models and data of the programs for Keras on JAX."""

import jax

jax.config.update("jax_enable_x64", True)

import keras  # noqa: E402
import numpy as np  # noqa: E402

import tf_byteps  # noqa: E402
from tf_byteps.strategy.jax import start_scheduling  # noqa: E402

# The layers are small: with this their exchanges start early, as those of large layers do.
start_scheduling.LEAST_ELEMENTS = 16
keras.config.set_floatx("float64")


def data(rows=50):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(rows, 6))
    return x, x[:, :3].argmax(axis=1)


def model_of(optimizer="sgd", loss="sparse_categorical_crossentropy", layers=(), **options):
    """Made alike in one process and on worker 0; other workers begin with other weights."""
    strategy = options.pop("strategy", None) or tf_byteps.BytePSStrategy()
    keras.utils.set_random_seed(7 + tf_byteps.rank())
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Dense(8, "relu", kernel_regularizer="l2"),
                *layers,
                keras.layers.Dense(3, "softmax"),
            ]
        )
        model.compile(optimizer, loss, **options)
    return model


def facts(model, history=None, **others):
    return {
        "history": history.history if history is not None else {},
        "weights": [np.asarray(weight) for weight in model.get_weights()],
        **others,
    }


class Batches(keras.utils.PyDataset):
    def __init__(self, x, y):
        super().__init__()
        self._x, self._y = x, y

    def __len__(self):
        return -(-len(self._x) // 12)

    def __getitem__(self, index):
        rows = slice(index * 12, index * 12 + 12)
        return self._x[rows], self._y[rows]


class Losses(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))


def error_of(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"
