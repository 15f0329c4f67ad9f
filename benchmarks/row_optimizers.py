"""How long optimizers take for the rows of a large embedding, in one process.

    python -m benchmarks.row_optimizers
    python -m benchmarks.row_optimizers --table-rows 2000000 --rows 500

Each optimizer of `tf_byteps.keras.optimizers` beside Keras's own, in turns: the median time of a
step that applies a gradient of some rows of a table. The step is a `tf.function` that XLA does not
compile, as Keras has it on a CPU.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

from tf_byteps.keras import optimizers

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


def _step(optimizer, options):
    table = keras.Variable(np.zeros((options.table_rows, options.width), "float32"))
    optimizer.build([table])
    shape = tf.constant([options.table_rows, options.width])

    @tf.function
    def step(values, indices):
        optimizer.apply([tf.IndexedSlices(values, indices, shape)], [table])

    return step


def _milliseconds(steps, options):
    """The median of each step's time; the steps take turns."""
    random = np.random.default_rng(0)
    times = [[] for _ in steps]
    for turn in range(options.turns + 1):
        indices = tf.constant(random.choice(options.table_rows, options.rows, replace=False))
        values = tf.constant(random.normal(size=(options.rows, options.width)).astype("float32"))
        for step, took in zip(steps, times, strict=True):
            began = time.perf_counter()
            step(values, indices)
            if turn:  # the first traces
                took.append((time.perf_counter() - began) * 1e3)
    return [statistics.median(took) for took in times]


def main():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.row_optimizers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--table-rows", type=int, default=500_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rows", type=int, default=2_000, help="of a step's gradient")
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    print(f"{'optimizer':<20}{'Keras, ms':>12}{'rows, ms':>12}")
    for name, (whole, of_rows, arguments) in _OPTIMIZERS.items():
        steps = [_step(make(0.1, **arguments), options) for make in (whole, of_rows)]
        keras_ms, rows_ms = _milliseconds(steps, options)
        print(f"{name:<20}{keras_ms:>12.1f}{rows_ms:>12.1f}", flush=True)


if __name__ == "__main__":
    main()
