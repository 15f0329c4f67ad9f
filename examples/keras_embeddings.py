"""Trains a recommender with two large tables of embeddings, of which a batch uses few rows.

What it teaches:
* Rows travel, not tables: a step sends what its batch has touched. The last line of bpslaunch says
  how many bytes that were.
* Workers may touch the same rows: their gradients are added up, as in one process.
* `--dense` sends whole tables: faster only if they are small, and a step uses most of their rows.

python examples/keras_embeddings.py                                # one worker, no network
bpslaunch -np 2 --servers 1 python examples/keras_embeddings.py    # two workers and a server
"""

import sys

import keras
import numpy as np
from absl import flags

import tf_byteps as bps

USERS, FILMS, WIDTH = 20_000, 10_000, 16
DENSE = flags.DEFINE_bool("dense", False, "send whole tables")
flags.FLAGS(sys.argv)

random = np.random.default_rng(0)  # the same on all workers
users, films = random.integers(0, USERS, 4096), random.integers(0, FILMS, 4096)
likes = (users % 2 == films % 2).astype("float32")

with bps.BytePSStrategy(sparse_as_dense=DENSE.value).scope():
    user, film = keras.Input([1]), keras.Input([1])
    rows = [keras.layers.Embedding(USERS, WIDTH)(user), keras.layers.Embedding(FILMS, WIDTH)(film)]
    hidden = keras.layers.Flatten()(keras.layers.Concatenate()(rows))
    model = keras.Model([user, film], keras.layers.Dense(1, "sigmoid")(hidden))
    # XLA, which Keras chooses on GPUs, would make tables of the rows.
    model.compile("sgd", "binary_crossentropy", jit_compile=False)

verbose = 2 if bps.rank() == 0 else 0
model.fit([users, films], likes, batch_size=256, epochs=2, verbose=verbose)
