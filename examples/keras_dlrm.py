"""Trains DLRM, a click predictor with many tables of embeddings, spread over the workers.

What it teaches:
* `DistributedEmbedding`: each worker holds its share of the rows of all tables. A step exchanges
  rows in two exchanges forward and one backward, however many tables there are.
* `RowWiseAdagrad` touches the rows of a step only, and keeps one number for each row.
* The shapes of DLRM-small, with indices as skewed as those of click logs.

python examples/keras_dlrm.py                                # one worker, no network
bpslaunch -np 2 --servers 1 python examples/keras_dlrm.py    # two workers and a server
"""

import sys
import time

import keras
import numpy as np
from absl import flags

import tf_byteps as bps
from tf_byteps.keras import layers, optimizers

TABLES = flags.DEFINE_integer("tables", 26, "tables of embeddings, one for each feature")
ROWS = flags.DEFINE_integer("rows", 100_000, "rows of a table")
WIDTH = flags.DEFINE_integer("width", 16, "numbers in a row")
BATCH = flags.DEFINE_integer("batch", 2_048, "samples of a step, of all workers")
STEPS = flags.DEFINE_integer("steps", 16, "steps of an epoch")
SKEW = flags.DEFINE_float("skew", 1.05, "the exponent of Zipf's law that indices follow")
REPLICATED = flags.DEFINE_bool("replicated", False, "keras.layers.Embedding, for comparison")
flags.FLAGS(sys.argv)

NUMBERS = 13  # dense features, as in Criteo's data

random = np.random.default_rng(0)  # the same on all workers
samples = STEPS.value * BATCH.value
shares = np.arange(1, ROWS.value + 1) ** -SKEW.value
ids = random.choice(ROWS.value, (samples, TABLES.value), p=shares / shares.sum())
dense = random.normal(size=(samples, NUMBERS)).astype("float32")
clicks = ((ids.sum(1) % 3 == 0) ^ (dense[:, 0] > 0)).astype("float32")
names = [f"feature_{number}" for number in range(TABLES.value)]


def looked_up(inputs):
    """One row for each feature."""
    if REPLICATED.value:
        return [keras.layers.Embedding(ROWS.value, WIDTH.value)(inputs[name]) for name in names]
    tables = {name: layers.TableConfig(name, ROWS.value, WIDTH.value) for name in names}
    features = {name: layers.FeatureConfig(name, tables[name]) for name in names}
    rows = layers.DistributedEmbedding(features)({name: inputs[name] for name in names})
    return [rows[name] for name in names]


def perceptron(tensor, *widths):
    """Dense layers, one after the other."""
    for width in widths:
        tensor = keras.layers.Dense(width, "relu")(tensor)
    return tensor


with bps.BytePSStrategy().scope():
    inputs = {name: keras.Input([], dtype="int64", name=name) for name in names}
    inputs["numbers"] = keras.Input([NUMBERS], name="numbers")
    bottom = perceptron(inputs["numbers"], 64, WIDTH.value)
    vectors = keras.ops.stack([bottom, *looked_up(inputs)], 1)
    # Each pair of vectors interacts by its product.
    products = keras.ops.matmul(vectors, keras.ops.transpose(vectors, [0, 2, 1]))
    joined = keras.layers.Concatenate()([bottom, keras.layers.Flatten()(products)])
    click = keras.layers.Dense(1, "sigmoid")(perceptron(joined, 64, 32))
    model = keras.Model(inputs, click)
    model.compile(optimizers.RowWiseAdagrad(0.05), "binary_crossentropy", jit_compile=False)

verbose = 2 if bps.rank() == 0 else 0
data = {name: ids[:, number] for number, name in enumerate(names)} | {"numbers": dense}
options = {"batch_size": BATCH.value, "shuffle": False, "verbose": verbose}
model.fit(data, clicks, epochs=1, **options)
began = time.monotonic()
model.fit(data, clicks, epochs=1, **options)
if bps.rank() == 0:
    print(f"{(time.monotonic() - began) / STEPS.value * 1000:.1f} ms a step")
