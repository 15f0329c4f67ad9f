"""How long optimizers take for the rows of a large embedding, in one process.

    python -m benchmarks.row_optimizers
    python -m benchmarks.row_optimizers --table-rows 2000000 --rows 500

Each optimizer of `tf_byteps.keras.optimizers` beside Keras's own, in turns: the median time of a
step that applies a gradient of some rows of a table. The step is a `tf.function` that XLA does not
compile, as Keras has it on a CPU.
"""

import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from absl import flags

from benchmarks import options
from tf_byteps.keras import optimizers

_TABLE_ROWS = flags.DEFINE_integer("table-rows", 500_000, "of the table", lower_bound=1)
_WIDTH = flags.DEFINE_integer("width", 64, "of a row", lower_bound=1)
_ROWS = flags.DEFINE_integer("rows", 2_000, "of a step's gradient", lower_bound=1)
_TURNS = flags.DEFINE_integer("turns", 7, "steps of each optimizer", lower_bound=1)

_OPTIMIZERS = {
    "SGD": (keras.optimizers.SGD, optimizers.LazySGD, {}),
    "SGD, momentum": (keras.optimizers.SGD, optimizers.LazySGD, {"momentum": 0.9}),
    "Adagrad": (keras.optimizers.Adagrad, optimizers.Adagrad, {}),
    "Ftrl": (keras.optimizers.Ftrl, optimizers.Ftrl, {}),
    "RMSprop": (keras.optimizers.RMSprop, optimizers.RMSprop, {}),
    "Adadelta": (keras.optimizers.Adadelta, optimizers.Adadelta, {}),
    "Adam": (keras.optimizers.Adam, optimizers.LazyAdam, {}),
    "row-wise Adagrad": (keras.optimizers.Adagrad, optimizers.RowWiseAdagrad, {}),
}


def _step(optimizer):
    table = keras.Variable(np.zeros((_TABLE_ROWS.value, _WIDTH.value), "float32"))
    optimizer.build([table])
    shape = tf.constant([_TABLE_ROWS.value, _WIDTH.value])

    @tf.function
    def step(values, indices):
        optimizer.apply([tf.IndexedSlices(values, indices, shape)], [table])

    return step


def _milliseconds(steps):
    """The median of each step's time; the steps take turns."""
    random = np.random.default_rng(0)
    times = [[] for _ in steps]
    for turn in range(_TURNS.value + 1):
        indices = tf.constant(random.choice(_TABLE_ROWS.value, _ROWS.value, replace=False))
        values = tf.constant(random.normal(size=(_ROWS.value, _WIDTH.value)).astype("float32"))
        for step, took in zip(steps, times, strict=True):
            began = time.perf_counter()
            step(values, indices)
            if turn:  # the first traces
                took.append((time.perf_counter() - began) * 1e3)
    return [statistics.median(took) for took in times]


def main():
    print(f"{'optimizer':<20}{'Keras, ms':>12}{'rows, ms':>12}")
    for name, (whole, of_rows, arguments) in _OPTIMIZERS.items():
        steps = [_step(make(0.1, **arguments)) for make in (whole, of_rows)]
        keras_ms, rows_ms = _milliseconds(steps)
        print(f"{name:<20}{keras_ms:>12.1f}{rows_ms:>12.1f}", flush=True)
    return True


if __name__ == "__main__":
    options.run(main)
