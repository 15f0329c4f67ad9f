"""What the workers of test_data.py do."""

import os
import tempfile

import keras
import numpy as np
import tensorflow as tf
from state_programs import _warnings

import tf_byteps as bps

_ROWS = 32


class Rows(keras.Model):
    """Notes the first number of the rows that this worker trains on."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def call(self, x):
        return x

    def train_step(self, data):
        def record(x):
            self.rows += x.reshape(len(x), -1)[:, 0].tolist()
            return np.float32(0.0)

        x = data[0] if isinstance(data, tuple) else data
        return {"loss": tf.numpy_function(record, [x], tf.float32)}


def _trained(*args, **options):
    with bps.BytePSStrategy().scope():
        model = Rows()
        model.compile("sgd", "mse")
    model.fit(*args, verbose=0, **options)
    return list(model.rows)


def _numbers():
    return np.arange(_ROWS, dtype="float32")[:, np.newaxis]


# What workers must have alike.


def own_arrays():
    """Each worker has loaded a shard of its own."""
    x = np.random.RandomState(bps.rank()).normal(size=(_ROWS, 3)).astype("float32")
    _trained(x, x[:, :1], batch_size=8)


def own_labels():
    """The rows are the same, but integer labels were shuffled."""
    labels = np.random.RandomState(bps.rank()).permutation(_ROWS)
    _trained(_numbers(), labels, batch_size=8)


def own_words():
    words = np.random.RandomState(bps.rank()).permutation([f"word {i}" for i in range(_ROWS)])
    dataset = tf.data.Dataset.from_tensor_slices(words)
    _trained(dataset.map(lambda word: tf.strings.to_number(tf.strings.substr(word, 5, 2))).batch(8))


def own_evaluation():
    """Rows that were split off at random are evaluated."""
    with bps.BytePSStrategy().scope():
        model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    held_out = _numbers()[np.random.RandomState(bps.rank()).permutation(_ROWS)[:16]]
    model.evaluate(held_out, held_out, batch_size=8, verbose=0)


def image_directory(seed=None):
    """`image_dataset_from_directory`, whose default draws an order in each process."""
    if seed is not None:
        keras.utils.set_random_seed(seed)
    else:
        np.random.seed(bps.rank())  # as in processes that nobody has seeded
    with tempfile.TemporaryDirectory() as folder:
        for index in range(_ROWS):
            path = os.path.join(folder, "ab"[index % 2], f"{index}.png")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            image = np.full([2, 2, 1], index, "uint8")
            tf.io.write_file(path, tf.io.encode_png(image))
        dataset = keras.utils.image_dataset_from_directory(
            folder, image_size=(2, 2), color_mode="grayscale", batch_size=8, verbose=False
        )
        return _trained(dataset)


def own_seed():
    _trained(tf.data.Dataset.from_tensor_slices(_numbers()).shuffle(8, seed=bps.rank()).batch(8))


def shuffled_before_the_strategy():
    """No strategy is there yet to give the shuffle its seed."""
    keras.backend.clear_session()
    dataset = tf.data.Dataset.from_tensor_slices(_numbers()).shuffle(_ROWS).batch(8)
    _trained(dataset)


def last_bits():
    """Rows that two hosts have computed may differ in their last bits."""
    x = np.random.RandomState(0).normal(size=(_ROWS, 3)).astype("float32")
    x = np.nextafter(x, np.inf, dtype="float32") if bps.rank() else x
    return len(_trained(x, x[:, :1], batch_size=8))


# Data that are each worker's own.


def from_function(shards=False):
    """An unseeded shuffle of all rows, or of this worker's."""
    strategy = bps.BytePSStrategy()

    def dataset_fn(context):
        dataset = tf.data.Dataset.from_tensor_slices(_numbers()[:, 0])
        if shards:
            dataset = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
        return dataset.shuffle(_ROWS).batch(8).take(2)

    found = []
    warnings = _warnings(
        lambda: found.append(strategy.distribute_datasets_from_function(dataset_fn))
    )
    return [row for batch in found[0] for row in batch.numpy().tolist()], warnings


def off(shards=False):
    """AutoShardPolicy.OFF, sharded by the program or not."""
    strategy = bps.BytePSStrategy()
    dataset = tf.data.Dataset.from_tensor_slices(_numbers()[:, 0])
    if shards:
        dataset = dataset.shard(bps.size(), bps.rank())
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = dataset.shuffle(_ROWS).batch(8).with_options(options)
    return _warnings(lambda: strategy.experimental_distribute_dataset(dataset))
