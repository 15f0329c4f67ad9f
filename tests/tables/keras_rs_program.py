"""A program as users of Keras-RS have it, for any number of processes.

test_keras_rs.py changes its import, and nothing else.
"""

import keras
import keras_rs
import numpy as np
import tensorflow as tf

BATCH, SAMPLES, WIDTH = 8, 48, 4
random = np.random.default_rng(3)


def table(name, rows, combiner="mean"):
    return keras_rs.layers.TableConfig(
        name=name,
        vocabulary_size=rows,
        embedding_dim=WIDTH,
        initializer=keras.initializers.RandomUniform(seed=rows),
        combiner=combiner,
        placement="auto",
        max_ids_per_partition=64,
    )


def feature(name, of, length):
    return keras_rs.layers.FeatureConfig(
        name=name, table=of, input_shape=(BATCH, length), output_shape=(BATCH, WIDTH)
    )


users, films = table("users", 20, "sum"), table("films", 30)
feature_configs = {
    "user": feature("user", users, 1),
    "films": {"seen": feature("seen", films, 5), "liked": feature("liked", films, 2)},
    "tags": feature("tags", table("tags", 11, "sqrtn"), 3),
}
ids = {
    "user": random.integers(0, 20, (SAMPLES, 1)),
    "films": {
        "seen": random.integers(0, 30, (SAMPLES, 5)),
        "liked": random.integers(0, 30, (SAMPLES, 2)),
    },
    "tags": random.integers(0, 11, (SAMPLES, 3)),
}
weights = keras.tree.map_structure(
    lambda array: random.uniform(0.5, 1.5, array.shape).astype("float32"), ids
)
clicks = (ids["user"] % 2 == ids["films"]["liked"][:, :1] % 2).astype("float32")


class Recommender(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = keras_rs.layers.DistributedEmbedding(
            feature_configs, table_stacking="auto", update_stats=False, name="embedding"
        )
        self.top = keras.layers.Dense(1, "sigmoid", kernel_initializer="ones")

    def call(self, inputs):
        return self.top(keras.ops.concatenate(keras.tree.flatten(self.embedding(inputs)), 1))


model = Recommender()
model.compile(keras.optimizers.SGD(0.5), "binary_crossentropy", metrics=["mae"])
dataset = tf.data.Dataset.from_tensor_slices((ids, weights, clicks))
dataset = dataset.batch(BATCH, drop_remainder=True)
first_ids, first_weights, _ = next(iter(dataset))
before = keras.tree.map_structure(np.asarray, model.embedding(first_ids, first_weights))
dataset = dataset.map(lambda x, w, y: (model.embedding.preprocess(x, w, training=True), y))
history = model.fit(dataset, epochs=2, verbose=0, shuffle=False)

result = {
    "looked up": before,
    "losses": history.history["loss"],
    "tables": keras.tree.map_structure(np.asarray, model.embedding.get_embedding_tables()),
    "configs": sorted(feature_configs["user"].get_config()),
}
