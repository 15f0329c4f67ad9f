"""Training steps drawn at random: what they do between a tape and an update."""

import dataclasses
import importlib
import random

import keras
import numpy as np

# The training step itself, as users of Keras's backend write it.
_DRAWN = importlib.import_module(f"tests.property.drawn_steps_of_{keras.backend.backend()}")
_BATCH = 6


@dataclasses.dataclass(frozen=True)
class Step:
    """A training with a step of its own. Each attribute is drawn by itself."""

    seed: int
    loss: str
    processing: tuple[str, ...]
    update: str
    optimizer: str
    accumulation: int | None
    feed: str
    rows: int
    tolerance: float = 1e-9  # everything is in float64


def draw(seed):
    """The step of a seed."""
    choose = random.Random(seed)
    loss = choose.choice(["mean", "mean", "object", "vector", "penalty"])
    return Step(
        seed=seed,
        loss=loss,
        processing=tuple(choose.sample(list(_DRAWN.PROCESSING), choose.choice([0, 1, 1, 2, 3]))),
        update=choose.choice(list(_DRAWN.UPDATES)),
        optimizer=choose.choice(list(_OPTIMIZERS)),
        accumulation=choose.choice([None, None, 2]),
        feed=choose.choice(list(_FEEDS)),
        rows=2 * _BATCH + choose.choice([0, 1, 1, 3]),
    )


def train(step, scope, run_eagerly, jit_compile):
    """Trains with a drawn step. See `cases.train`."""
    keras.config.set_floatx("float64")
    keras.utils.set_random_seed(step.seed)
    random_rows = np.random.default_rng(step.seed)
    x, y = random_rows.normal(size=(step.rows, 3)), random_rows.normal(size=(step.rows, 2))
    with scope():
        inputs = keras.Input([3])
        model = _DRAWN.DrawnModel(
            inputs, keras.layers.Dense(2)(keras.layers.Dense(4, "tanh")(inputs))
        )
        model.step = step
        model.prepare()
        options = {"gradient_accumulation_steps": step.accumulation}
        model.compile(
            _OPTIMIZERS[step.optimizer](**options), run_eagerly=run_eagerly, jit_compile=jit_compile
        )
    logs = model.fit(**_FEEDS[step.feed](x, y), epochs=2, shuffle=False, verbose=0).history
    results = {f"log {key}": values for key, values in logs.items()}
    for index, weights in enumerate(model.get_weights()):
        results[f"weights {index}"] = weights
    return {key: np.asarray(value, "float64").tolist() for key, value in results.items()}


_OPTIMIZERS = {
    "sgd": lambda **options: keras.optimizers.SGD(0.1, momentum=0.5, **options),
    "adam": lambda **options: keras.optimizers.Adam(0.02, epsilon=1e-3, **options),
    "clipping": lambda **options: keras.optimizers.SGD(0.1, global_clipnorm=0.3, **options),
    "own apply": lambda **options: _DRAWN.ScaledDescent(0.1, **options),
}


class _Batches(keras.utils.PyDataset):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y

    def __len__(self):
        return -(-len(self.x) // _BATCH)

    def __getitem__(self, index):
        rows = slice(index * _BATCH, (index + 1) * _BATCH)
        return self.x[rows], self.y[rows]


def _dataset(x, y):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((x, y)).batch(_BATCH)


_FEEDS = {
    "arrays": lambda x, y: {"x": x, "y": y, "batch_size": _BATCH},
    "dataset": lambda x, y: {"x": _dataset(x, y)},
    "PyDataset": lambda x, y: {"x": _Batches(x, y)},
}
