"""What `examples/demo.py` has its workers train: the lesson of `examples/keras_digits.py`, with a
count of how often each sample was used.

With `--report FOLDER` every worker writes what the demo checks.
"""

import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tf_byteps as bps

BATCH_SIZE = 64  # over all workers

_EPOCHS = flags.DEFINE_integer("epochs", 25, "how often to train on all images", lower_bound=1)
_REPORT = flags.DEFINE_string("report", None, "folder for a report of each worker")


class DigitsModel(keras.Model):
    """A small classifier that counts how often it was trained on each sample.

    Inputs are pairs of images, of shape `[batch, 64]`, and of their numbers, of shape `[batch]`:
    1, 2, ... A model that need not show that no sample is used twice would do without.
    """

    def __init__(self, num_samples):
        super().__init__()
        self.classifier = keras.Sequential(
            [
                keras.layers.Rescaling(1 / 16),
                keras.layers.Dense(128, activation="relu"),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(10, activation="softmax"),
            ]
        )
        self.counts = tf.Variable(tf.zeros([num_samples + 1], tf.int32), trainable=False)

    def call(self, inputs):
        return self.classifier(inputs[0])

    def train_step(self, data):
        numbers = data[0][1]
        self.counts.scatter_add(tf.IndexedSlices(tf.ones_like(numbers), numbers))
        return super().train_step(data)


class Progress(keras.callbacks.Callback):
    """Prints worker 0's log, and keeps what a report needs."""

    def __init__(self):
        super().__init__()
        self.samples = []  # of each epoch: the numbers of this worker's samples, sorted
        self.steps = 0
        self.seconds = []

    def on_epoch_begin(self, epoch, logs=None):
        self.model.counts.assign(tf.zeros_like(self.model.counts))
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1

    def on_epoch_end(self, epoch, logs=None):
        self.seconds.append(time.perf_counter() - self._began)
        counts = self.model.counts.numpy()
        counts[0] = 0  # stands for no sample
        self.samples.append(np.repeat(np.arange(len(counts)), counts).tolist())
        if bps.rank() == 0:
            values = "  ".join(f"{name} {value:.4f}" for name, value in logs.items())
            print(f"epoch {epoch + 1:2}  {values}", flush=True)


def main(_):
    keras.utils.set_random_seed(1)
    images, labels = load_digits(return_X_y=True)
    x, test_x, y, test_y = train_test_split(
        images.astype("float32"), labels, test_size=0.2, random_state=1, stratify=labels
    )
    numbers = np.arange(1, len(x) + 1, dtype="int32")

    strategy = bps.BytePSStrategy()
    with strategy.scope():
        model = DigitsModel(len(x))
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
        model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    progress = Progress()
    model.fit(
        (x, numbers),
        y,
        batch_size=BATCH_SIZE,
        epochs=_EPOCHS.value,
        verbose=0,
        callbacks=[progress],
    )
    loss, accuracy = model.evaluate(
        (test_x, np.zeros(len(test_x), "int32")), test_y, batch_size=BATCH_SIZE, verbose=0
    )
    if bps.rank() == 0:
        print(f"test accuracy {accuracy:.4f}, test loss {loss:.4f}", flush=True)
    if _REPORT.value:
        _write_report(_REPORT.value, model, progress, len(x), accuracy)
    bps.shutdown()


def _write_report(folder, model, progress, num_samples, accuracy):
    report = {
        "workers": bps.size(),
        "test accuracy": accuracy,
        "training samples": num_samples,
        "steps": progress.steps,
        # The first epoch also traces and compiles.
        "samples per second": num_samples * (len(progress.seconds) - 1) / sum(progress.seconds[1:]),
        "gradient bytes": sum(weights.numpy().nbytes for weights in model.trainable_variables),
        "samples": progress.samples,
    }
    path = os.path.join(folder, f"worker-{bps.rank()}")
    np.savez(f"{path}.npz", *model.get_weights())
    with open(f"{path}.json", "w") as file:
        json.dump(report, file)


if __name__ == "__main__":
    app.run(main)
