"""Trains two towers that find films for users, with tables that are spread over the workers.

What it teaches:
* `DistributedEmbedding`: each worker holds its share of the rows, and asks the others for the rest.
* Several features look up in one table: the film that a user likes, and those seen before.
* The loss compares each user with all films of the worker's part of the batch.

python examples/keras_two_towers.py                                # one worker, no network
bpslaunch -np 2 --servers 1 python examples/keras_two_towers.py    # two workers and a server
"""

import sys

import keras
import numpy as np
from absl import flags

import tf_byteps as bps
from tf_byteps.keras import layers

USERS = flags.DEFINE_integer("users", 2_000, "rows of the table of users")
FILMS = flags.DEFINE_integer("films", 1_000, "rows of the table of films")
WIDTH = flags.DEFINE_integer("width", 16, "numbers in a row")
STEPS = flags.DEFINE_integer("steps", 16, "steps of an epoch")
BATCH = flags.DEFINE_integer("batch", 256, "samples of a step, of all workers")
flags.FLAGS(sys.argv)

random = np.random.default_rng(0)  # the same on all workers
samples = STEPS.value * BATCH.value
users = random.integers(0, USERS.value, samples)
liked = (users * 7 + random.integers(0, 3, samples)) % FILMS.value
seen = (users[:, np.newaxis] * 7 + random.integers(0, 3, (samples, 4))) % FILMS.value


@keras.saving.register_keras_serializable("two_towers")
def in_batch_loss(labels, scores):
    """Each user's film is to have a higher score than those of the other users."""
    del labels
    rows = keras.ops.arange(keras.ops.shape(scores)[0])
    return keras.losses.sparse_categorical_crossentropy(rows, scores, from_logits=True)


with bps.BytePSStrategy().scope():
    user_table = layers.TableConfig("users", USERS.value, WIDTH.value)
    film_table = layers.TableConfig("films", FILMS.value, WIDTH.value, combiner="mean")
    inputs = {
        "user": keras.Input([], dtype="int64", name="user"),
        "seen": keras.Input([4], dtype="int64", name="seen"),
        "film": keras.Input([], dtype="int64", name="film"),
    }
    rows = layers.DistributedEmbedding(
        {
            "user": layers.FeatureConfig("user", user_table),
            "seen": layers.FeatureConfig("seen", film_table),
            "film": layers.FeatureConfig("film", film_table),
        }
    )(inputs)
    user = keras.layers.Dense(WIDTH.value)(keras.layers.Concatenate()([rows["user"], rows["seen"]]))
    film = keras.layers.Dense(WIDTH.value)(rows["film"])
    scores = keras.ops.matmul(user, keras.ops.transpose(film))
    model = keras.Model(inputs, scores)
    model.compile(keras.optimizers.Adagrad(0.1), in_batch_loss)

verbose = 2 if bps.rank() == 0 else 0
data = {"user": users, "seen": seen, "film": liked}
model.fit(data, np.zeros(samples), batch_size=BATCH.value, epochs=2, verbose=verbose)
