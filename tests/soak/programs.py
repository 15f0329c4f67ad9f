"""What the workers of the soak run."""

import contextlib
import time

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps

_ROWS, _BATCH = 4800, 48


def train(seconds, jit_compile="auto", alone=False):
    """Trains for a time after the first epoch; each has an evaluation and a prediction.

    Args:
        seconds: how long.
        jit_compile: as `compile` has it.
        alone: whether to train as a program without tf_byteps does. It joins the job all the same.

    Returns:
        The number of steps, the loss of the first and of the last epoch, and the memory in use on
        the GPU after these, in MB (empty without one).
    """
    bps.init()
    with contextlib.nullcontext() if alone else bps.BytePSStrategy().scope():
        model = keras.Sequential(
            [
                keras.Input([64]),
                keras.layers.Dense(512, activation="relu"),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(512, activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"], jit_compile=jit_compile)
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(_ROWS, 64)).astype(np.float32)
    labels = np.argmax(rows @ generator.normal(size=(64, 10)), axis=1)
    data = tf.data.Dataset.from_tensor_slices((rows, labels)).shuffle(_ROWS).batch(_BATCH)

    gpu_mb = []  # the first epoch's, and the latest one's

    class Clock(keras.callbacks.Callback):
        deadline = None

        def on_epoch_end(self, epoch, logs=None):
            if tf.config.list_physical_devices("GPU"):
                used = tf.config.experimental.get_memory_info("GPU:0")["current"]
                gpu_mb[1:] = [round(used / 1e6, 2)]
            self.deadline = self.deadline or time.monotonic() + seconds
            self.model.stop_training = time.monotonic() > self.deadline
            self.model.predict(rows[:_BATCH], verbose=0)
            if epoch == 0:
                print("training", flush=True)

    arguments = {"validation_data": (rows[:480], labels[:480]), "verbose": 0}
    history = model.fit(data, epochs=10**9, callbacks=[Clock()], **arguments).history
    losses = history["loss"]
    return {
        "steps": int(model.optimizer.iterations),
        "losses": [losses[0], losses[-1]],
        "gpu_mb": gpu_mb,
    }
