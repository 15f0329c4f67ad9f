"""What a worker of test_initial_values.py does."""

import keras
import numpy as np

import tf_byteps
from tf_byteps.training import initial_values


def fit_three_times():
    """How many broadcasts were traced after each `fit`, and worker 0's values, which all get."""
    traced, broadcast = [], initial_values.broadcast

    def counted(*given, **named):
        traced.append(named["name"])
        return broadcast(*given, **named)

    initial_values.broadcast = counted
    with tf_byteps.BytePSStrategy().scope():
        model = keras.Sequential([keras.Input([4]), keras.layers.Dense(3), keras.layers.Dense(1)])
        model.compile("adam", "mse")
    x = np.ones([8, 4], "float32")
    counts, first = [], []
    kernel = model.layers[0].kernel
    for _ in range(3):
        # Each worker's own, until `fit` begins.
        kernel.assign(np.full([4, 3], tf_byteps.rank() + 1.0))
        begin = keras.callbacks.LambdaCallback(
            on_train_batch_begin=lambda batch, logs: first.append(float(kernel[0, 0]))
        )
        model.fit(x, x[:, :1], epochs=1, batch_size=8, verbose=0, callbacks=[begin])
        counts.append(len(traced))
    tf_byteps.shutdown()
    return counts, first
