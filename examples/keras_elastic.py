"""Trains a Keras model on images of digits with workers that may die, come and go.

What it teaches:
* A `state` holds what workers must agree upon: weights, epoch, batch. It is committed now and then.
* `train` begins again from the last commit when the workers have changed.
* The order of the data depends on the epoch alone, so that any number of workers can go on in it.

bpslaunch --min-np 1 --max-np 3 python examples/keras_elastic.py

Kill a worker with `kill -9` while it runs: the others go back to the last commit and go on, and
bpslaunch starts another one, which is let in at the next commit.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tf_byteps as bps

BATCH_SIZE = 64  # over all workers
EPOCHS = 20

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype("float32")

# What is made here stays when the workers change. Nothing may be exchanged before `train`.
keras.utils.set_random_seed(1)
strategy = bps.BytePSStrategy()
with strategy.scope():
    model = keras.Sequential(
        [keras.Input([64]), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.003), loss, metrics=["accuracy"])
state = bps.elastic.KerasState(model, epoch=0, batch=0)


def batches(epoch):
    """The batches of an epoch, in an order that depends on nothing else."""
    order = np.random.default_rng(epoch).permutation(len(images))
    rows = tf.data.Dataset.from_tensor_slices((images[order], labels[order]))
    return rows.batch(BATCH_SIZE)


class Progress(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if bps.rank() == 0:
            accuracy = f"accuracy {logs['accuracy']:.4f}"
            print(f"epoch {epoch + 1:2}  {accuracy}  {bps.size()} workers", flush=True)


@bps.elastic.run
def train(state):
    """Called again whenever the workers have changed; the state says where to go on."""
    while state.epoch < EPOCHS:
        model.fit(
            batches(state.epoch).skip(state.batch),  # what is committed is not done again
            initial_epoch=state.epoch,
            epochs=state.epoch + 1,
            shuffle=False,
            verbose=0,
            callbacks=[
                bps.elastic.UpdateBatchStateCallback(state),
                bps.elastic.UpdateEpochStateCallback(state),
                bps.elastic.CommitStateCallback(state, batches_per_commit=10),
                Progress(),
            ],
        )


train(state)
if bps.rank() == 0:
    logits = model.predict_on_batch(images)
    print(f"accuracy {np.mean(logits.argmax(1) == labels):.4f}", flush=True)
bps.shutdown()
