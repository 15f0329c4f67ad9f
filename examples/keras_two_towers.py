"""Trains two towers that find films for users, with tables that are spread over the workers.

What it teaches:
* `DistributedEmbedding`: each worker holds its share of the rows, and asks the others for the rest.
* Several features look up in one table: the film that a user likes, and those seen before. Tables
  have an optimizer of their own, whose steps take time for the rows of a batch only.
* The loss compares each user with all films of the worker's part of the batch. Afterwards `predict`
  gives the vectors of all films, among which each user's best ones are found.

python examples/keras_two_towers.py                                # one worker, no network
bpslaunch -np 2 --servers 1 python examples/keras_two_towers.py    # two workers and a server
"""

import sys

import keras
import numpy as np
from absl import flags

import tf_byteps as bps
from tf_byteps.keras import layers, optimizers

USERS = flags.DEFINE_integer("users", 100_000, "rows of the table of users")
FILMS = flags.DEFINE_integer("films", 20_000, "rows of the table of films")
WIDTH = flags.DEFINE_integer("width", 32, "numbers in a row")
STEPS = flags.DEFINE_integer("steps", 32, "steps of an epoch")
BATCH = flags.DEFINE_integer("batch", 1_024, "samples of a step, of all workers")
SKEW = flags.DEFINE_float("skew", 1.05, "the exponent of Zipf's law that films follow")
RATE = flags.DEFINE_float("rate", 0.3, "the learning rate of the tables")
flags.FLAGS(sys.argv)

GENRES = 20  # each user likes films of one
SEEN = 8  # films that a user has seen before
TESTED = 512  # users for whom films are found at the end

random = np.random.default_rng(0)  # the same on all workers
samples = STEPS.value * BATCH.value + TESTED
ranks = np.arange(1, FILMS.value // GENRES + 1) ** -SKEW.value
shape = (samples, 1 + SEEN)
users = random.integers(0, USERS.value, samples)
popular = random.choice(len(ranks), shape, p=ranks / ranks.sum())
films = popular * GENRES + users[:, np.newaxis] % GENRES
data = {"user": users, "seen": films[:, 1:], "film": films[:, 0]}


@keras.saving.register_keras_serializable("two_towers")
def in_batch_loss(labels, scores):
    """Each user's film is to have a higher score than those of the other users."""
    del labels
    rows = keras.ops.arange(keras.ops.shape(scores)[0])
    return keras.losses.sparse_categorical_crossentropy(rows, scores, from_logits=True)


with bps.BytePSStrategy().scope():
    own = optimizers.RowWiseAdagrad(RATE.value)
    user_table = layers.TableConfig("users", USERS.value, WIDTH.value, optimizer=own)
    film_table = layers.TableConfig("films", FILMS.value, WIDTH.value, optimizer=own)
    inputs = {
        "user": keras.Input([], dtype="int64", name="user"),
        "seen": keras.Input([SEEN], dtype="int64", name="seen"),
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
    model.compile(keras.optimizers.Adam(0.005), in_batch_loss)
    towers = keras.Model(inputs, [user, film])

verbose = 2 if bps.rank() == 0 else 0
trained = {name: values[TESTED:] for name, values in data.items()}
targets = np.zeros(samples - TESTED)
model.fit(trained, targets, batch_size=BATCH.value, epochs=2, verbose=verbose)

# All workers predict together, because they look up in each other's tables.
tested = {name: values[:TESTED] for name, values in data.items()}
user_vectors, _ = towers.predict(tested, batch_size=BATCH.value, verbose=0)
everything = {
    "user": np.zeros(FILMS.value, "int64"),  # only the tower of films counts
    "seen": np.zeros((FILMS.value, SEEN), "int64"),
    "film": np.arange(FILMS.value),
}
_, film_vectors = towers.predict(everything, batch_size=BATCH.value, verbose=0)
best = np.argpartition(-user_vectors @ film_vectors.T, 100, axis=1)[:, :100]
found = (best == tested["film"][:, np.newaxis]).any(1).mean()
if bps.rank() == 0:
    print(f"among the 100 best of {FILMS.value} films is the next one of {found:.0%} of the users")
