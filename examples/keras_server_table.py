"""Trains with a table of embeddings that no worker could hold: its rows are on the servers.

What it teaches:
* `TableConfig(placement="servers")`: a worker asks the servers for the rows of its batch, and sends
  their gradients. The servers update the rows, by the table's own optimizer.
* Servers make a row's initial values when they need them. So a table of any size is there at once,
  and takes memory only for the rows that have been trained.
* A worker's memory does not grow with the table. If a server is lost, another one has its rows.

bpslaunch -np 2 --servers 2 python examples/keras_server_table.py              # 6 MB
bpslaunch -np 2 --servers 2 python examples/keras_server_table.py --rows 16000000  # 4 GB
"""

import resource
import sys

import keras
import numpy as np
from absl import flags

import tf_byteps as bps
from tf_byteps.keras import layers, optimizers

ROWS = flags.DEFINE_integer("rows", 24_000, "rows of the table")
WIDTH = flags.DEFINE_integer("width", 64, "numbers in a row")
STEPS = flags.DEFINE_integer("steps", 24, "steps of an epoch")
EPOCHS = flags.DEFINE_integer("epochs", 3, "how often all samples are seen")
BATCH = flags.DEFINE_integer("batch", 1_024, "samples of a step, of all workers")
INDICES = flags.DEFINE_integer("indices", 8, "rows that a sample looks up")
RATE = flags.DEFINE_float("rate", 0.5, "the learning rate of the table")
flags.FLAGS(sys.argv)


def memory():
    """The most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


random = np.random.default_rng(0)  # the same on all workers
indices = random.integers(0, ROWS.value, (STEPS.value * BATCH.value, INDICES.value))
labels = (indices % 2).mean(axis=1, keepdims=True).astype("float32")  # how many are odd

with bps.BytePSStrategy().scope():
    table = layers.TableConfig(
        "items",
        ROWS.value,
        WIDTH.value,
        optimizer=optimizers.RowWiseAdagrad(RATE.value),
        placement="servers",
    )
    inputs = keras.Input([INDICES.value], dtype="int64", name="items")
    rows = layers.DistributedEmbedding(layers.FeatureConfig("items", table))(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(rows))
    model.compile(keras.optimizers.Adam(0.01), "mse")
    model.fit(
        indices, labels, batch_size=BATCH.value, epochs=1, verbose=0
    )  # TensorFlow's own memory
    before = memory()
    history = model.fit(
        indices, labels, batch_size=BATCH.value, epochs=EPOCHS.value, verbose=2 * (bps.rank() == 0)
    )
    losses = history.history["loss"]

table_bytes = ROWS.value * (WIDTH.value + 1) * 4
print(
    f"worker {bps.rank()}: a table of {table_bytes / 1e9:.3f} GB; this process has had "
    f"{before:.0f} MB before, and {memory():.0f} MB in the end; loss {losses[0]:.4f} to "
    f"{losses[-1]:.4f}"
)
