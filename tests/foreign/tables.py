"""Programs about tables: features of several kinds, and recommendations."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from tests.foreign.table import BATCH, OTHER_ROWS, REPEATED, ROWS, integers, numbers, program, shown


@program("structured data: preprocessing layers, adapted, in the model and in `map`", quick=True)
def structured_data(scope):
    keras.utils.set_random_seed(1)
    table = {
        "age": numbers(ROWS, 1) * 9 + 50,
        "kind": np.array(["a", "b", "c"])[integers(3, ROWS, 1)],
        "rank": integers(4, ROWS, 1),
    }
    dataset = tf.data.Dataset.from_tensor_slices((table, integers(2, ROWS, seed=1)))
    dataset = dataset.shuffle(ROWS).batch(BATCH)
    age, kind = layers.Normalization(axis=None), layers.StringLookup(output_mode="one_hot")
    age.adapt(dataset.map(lambda row, y: row["age"]))
    kind.adapt(dataset.map(lambda row, y: row["kind"]))
    dataset = dataset.map(lambda row, y: ({**row, "kind": kind(row["kind"])}, y))
    with scope():
        inputs = {
            "age": keras.Input([1], name="age"),
            "kind": keras.Input([4], name="kind"),
            "rank": keras.Input([1], name="rank", dtype="int32"),
        }
        ranks = layers.CategoryEncoding(4, output_mode="one_hot")(inputs["rank"])
        features = layers.Concatenate()([age(inputs["age"]), inputs["kind"], ranks])
        hidden = layers.Dense(8, "relu")(features)
        model = keras.Model(inputs, layers.Dense(1, "sigmoid")(hidden))
        model.compile("adam", "binary_crossentropy", metrics=["accuracy", "auc"])
    return shown(model, model.fit(dataset, epochs=3, verbose=0))


@program("imbalanced classes: `class_weight`, counting metrics, a checkpoint each epoch")
def imbalanced(scope, folder):
    keras.utils.set_random_seed(2)
    x = numbers(ROWS, 5)
    y = (x[:, :1] > 1).astype("int32")
    with scope():
        layer = [keras.Input([5]), layers.Dense(8, "relu"), layers.Dropout(0.0)]
        model = keras.Sequential([*layer, layers.Dense(1, "sigmoid")])
        names = ("FalseNegatives", "FalsePositives", "Precision", "Recall", "AUC")
        metrics = [getattr(keras.metrics, name)(name=name) for name in names]
        model.compile(keras.optimizers.Adam(1e-2), "binary_crossentropy", metrics=metrics)
    history = model.fit(
        x,
        y,
        batch_size=BATCH,
        epochs=3,
        validation_data=(x[:17], y[:17]),
        class_weight={0: 1.0, 1: 5.0},
        callbacks=[keras.callbacks.ModelCheckpoint(folder / "at_{epoch}.keras")],
        verbose=0,
    )
    return shown(model, history)


class Recommender(keras.Model):
    def __init__(self, users, items):
        super().__init__()
        regularizer = keras.regularizers.l2(1e-3)
        options = {"embeddings_initializer": "he_normal", "embeddings_regularizer": regularizer}
        self.users = layers.Embedding(users, 4, **options)
        self.user_bias = layers.Embedding(users, 1)
        self.items = layers.Embedding(items, 4, **options)

    def call(self, inputs):
        user, item = inputs[:, 0], inputs[:, 1]
        match = ops.sum(self.users(user) * self.items(item), axis=1, keepdims=True)
        return ops.sigmoid(match + self.user_bias(user))


def _recommendations(scope, optimizer):
    keras.utils.set_random_seed(3)
    pairs = np.concatenate([integers(9, ROWS, 1), integers(7, ROWS, 1, seed=1)], 1)
    ratings = abs(np.tanh(numbers(ROWS)))
    with scope():
        model = Recommender(9, 7)
        model.compile(optimizer(), keras.losses.BinaryCrossentropy())
    history = model.fit(pairs, ratings, batch_size=BATCH, epochs=2, validation_split=0.1, verbose=0)
    return shown(model, history)


@program(
    "the same with `merge_repeated_rows=False`",
    strategy={"merge_repeated_rows": False},
    name="recommender_unmerged",
)
@program(
    "recommendations from embeddings, some regularized, Adam", differs=REPEATED, name="recommender"
)
def _recommender(scope):
    return _recommendations(scope, lambda: keras.optimizers.Adam(0.01))


@program("the same with SGD and momentum")
def recommender_sgd(scope):
    return _recommendations(scope, lambda: keras.optimizers.SGD(0.1, momentum=0.9))


class TwoTowers(keras.Model):
    """Retrieval: the ratings of pairs, or each user's item among those of the batch."""

    def __init__(self, in_batch):
        super().__init__()
        self.user = keras.Sequential([layers.Embedding(9, 4), layers.Dense(3)])
        self.item = keras.Sequential([layers.Embedding(7, 4), layers.Dense(3)])
        self.in_batch = in_batch

    def call(self, inputs):
        return self.user(inputs["user"]), self.item(inputs["item"])

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        users, items = y_pred
        if not self.in_batch:
            return ops.mean((ops.sum(users * items, axis=1) - y) ** 2)
        scores = tf.matmul(users, items, transpose_b=True)
        right = tf.range(tf.shape(scores)[0])
        return ops.mean(
            keras.losses.sparse_categorical_crossentropy(right, scores, from_logits=True)
        )


def _retrieval(scope, optimizer, in_batch):
    keras.utils.set_random_seed(4)
    pairs = {"user": integers(9, ROWS), "item": integers(7, ROWS, seed=1)}
    dataset = tf.data.Dataset.from_tensor_slices((pairs, numbers(ROWS))).shuffle(ROWS).batch(BATCH)
    with scope():
        model = TwoTowers(in_batch)
        model.compile(optimizer())
    return shown(model, model.fit(dataset, epochs=2, verbose=0))


@program("two towers, own `compute_loss`, SGD")
def two_towers(scope):
    return _retrieval(scope, lambda: keras.optimizers.SGD(0.1), False)


@program(
    "the same with `merge_repeated_rows=False`",
    strategy={"merge_repeated_rows": False},
    name="two_towers_adagrad_unmerged",
)
@program("two towers, own `compute_loss`, Adagrad", differs=REPEATED, name="two_towers_adagrad")
def _two_towers_adagrad(scope):
    return _retrieval(scope, lambda: keras.optimizers.Adagrad(0.1), False)


@program("two towers, with the other items of the batch as wrong answers", differs=OTHER_ROWS)
def two_towers_in_batch(scope):
    return _retrieval(scope, lambda: keras.optimizers.SGD(0.1), True)
