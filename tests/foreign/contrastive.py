"""Programs that compare pictures with each other."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from tests.foreign.table import BATCH, OTHER_ROWS, ROWS, pictures, program, shown


def _tower():
    return keras.Sequential(
        [keras.Input([8, 8, 1]), layers.Flatten(), layers.Dense(6, "tanh"), layers.Dense(3)]
    )


def _contrastive_loss(margin=1.0):
    def loss(y_true, y_pred):
        near = ops.square(y_pred)
        far = ops.square(ops.maximum(margin - y_pred, 0))
        return ops.mean((1 - y_true) * near + y_true * far)

    return loss


@program("siamese networks, `compile(loss=f)` with a function that returns a scalar", quick=True)
def siamese_contrastive(scope):
    keras.utils.set_random_seed(4)
    (first, a), (second, b) = pictures(ROWS), pictures(ROWS, seed=1)
    unlike = (a != b).astype(first.dtype)[:, None]
    with scope():
        left, right, tower = keras.Input([8, 8, 1]), keras.Input([8, 8, 1]), _tower()
        squares = ops.sum(ops.square(tower(left) - tower(right)), axis=1, keepdims=True)
        model = keras.Model([left, right], ops.sqrt(ops.maximum(squares, 1e-7)))
        model.compile("RMSprop", loss=_contrastive_loss(), metrics=["accuracy"])
    history = model.fit(
        [first, second],
        unlike,
        validation_data=([first[:7], second[:7]], unlike[:7]),
        batch_size=BATCH,
        epochs=2,
        verbose=0,
    )
    return shown(model, history)


class Triplets(keras.Model):
    """Its loss is a vector, so that the tape adds up the gradients of the rows."""

    def __init__(self):
        super().__init__()
        self.tower = _tower()
        self.loss_tracker = keras.metrics.Mean(name="loss")

    def call(self, rows):
        anchor, near, far = (self.tower(row) for row in rows)
        return ops.sum((anchor - near) ** 2, -1), ops.sum((anchor - far) ** 2, -1)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            near, far = self(data)
            loss = tf.maximum(near - far + 0.5, 0.0)
        gradients = tape.gradient(loss, self.tower.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.tower.trainable_weights))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}

    @property
    def metrics(self):
        return [self.loss_tracker]


@program("siamese networks with triplets: own `train_step` whose loss is a vector")
def siamese_triplets(scope):
    keras.utils.set_random_seed(5)
    triplets = tuple(pictures(ROWS, seed=seed)[0] for seed in range(3))
    dataset = tf.data.Dataset.from_tensor_slices(triplets).batch(BATCH)
    with scope():
        model = Triplets()
        model.compile(keras.optimizers.SGD(0.01))
    return shown(model, model.fit(dataset, epochs=2, verbose=0))


class Contrastive(keras.Model):
    """Two views of a picture should be near each other, and far from all other pictures."""

    def __init__(self, gathers):
        super().__init__()
        self.tower = _tower()
        self.gathers = gathers

    def call(self, x):
        return self.tower(x)

    def train_step(self, data):
        x = data[0] if isinstance(data, tuple) else data
        with tf.GradientTape() as tape:
            first = ops.normalize(self.tower(x), axis=1)
            second = ops.normalize(self.tower(x[:, ::-1]), axis=1)
            context = tf.distribute.get_replica_context()
            others, start = second, 0
            if self.gathers:
                others = context.all_gather(second, axis=0)
                rows = context.all_gather(tf.shape(x)[:1], axis=0)
                start = tf.reduce_sum(rows[: context.replica_id_in_sync_group])
            similarities = tf.matmul(first, others, transpose_b=True) / 0.5
            loss = tf.reduce_mean(
                keras.losses.sparse_categorical_crossentropy(
                    start + tf.range(tf.shape(x)[0]), similarities, from_logits=True
                )
            )
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"contrast": loss}


def _train_contrastive(scope, gathers, rows):
    keras.utils.set_random_seed(6)
    x, _ = pictures(rows)
    with scope():
        model = Contrastive(gathers)
        model.compile(keras.optimizers.SGD(0.1))
    return shown(model, model.fit(x, batch_size=BATCH, epochs=2, verbose=0))


@program("contrastive pairs (SimCLR) against embeddings gathered from all replicas")
def simclr_gathered(scope):
    return _train_contrastive(scope, True, ROWS - ROWS % BATCH)


@program("the same with a batch that is not cut evenly")
def simclr_gathered_uneven(scope):
    return _train_contrastive(scope, True, ROWS)


@program("the same without gathering", differs=OTHER_ROWS)
def simclr(scope):
    return _train_contrastive(scope, False, ROWS - ROWS % BATCH)


class Queue(keras.Model):
    """Compares pictures with a queue of keys, which a slowly moving copy of the tower made."""

    def __init__(self, gathers, kind=None):
        super().__init__()
        self.tower, self.slow_tower = _tower(), _tower()
        self.slow_tower.trainable = False
        self.slow_tower.set_weights(self.tower.get_weights())
        self.gathers = gathers
        self.keys = self.add_weight(
            shape=[2 * BATCH, 3], initializer="random_normal", trainable=False, name="keys"
        )
        if kind is not None:
            self.keys.byteps_kind = kind

    def call(self, x):
        return self.tower(x)

    def train_step(self, x):
        keys = ops.normalize(self.slow_tower(x[:, ::-1]), axis=1)
        with tf.GradientTape() as tape:
            queries = ops.normalize(self.tower(x), axis=1)
            right = tf.reduce_sum(queries * keys, axis=1, keepdims=True)
            wrong = tf.matmul(queries, tf.convert_to_tensor(self.keys), transpose_b=True)
            losses = -tf.nn.log_softmax(tf.concat([right, wrong], 1) / 0.5)[:, 0]
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, self.tower.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.tower.trainable_variables))
        for slow, fast in zip(self.slow_tower.weights, self.tower.weights):
            slow.assign(0.9 * slow + 0.1 * fast)
        if self.gathers:
            keys = tf.distribute.get_replica_context().all_gather(keys, axis=0)
        self.keys.assign(tf.concat([keys, self.keys], 0)[: 2 * BATCH])
        return {"contrast": loss}


def _train_queue(scope, gathers, rows, kind=None):
    keras.utils.set_random_seed(7)
    x, _ = pictures(rows)
    with scope():
        model = Queue(gathers, kind)
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9))
    history = model.fit(x, batch_size=BATCH, epochs=2, verbose=0)
    more = {"queue": model.keys} if gathers else {}
    if kind is not None:
        more["same lengths of keys"] = np.round(ops.norm(model.keys, axis=1), 6)
    return shown([model.tower, model.slow_tower], history, **more)


@program("momentum contrast (MoCo) with a queue of all replicas' keys")
def moco_gathered(scope):
    return _train_queue(scope, True, ROWS - ROWS % BATCH)


@program(
    "the same without gathering",
    differs="a worker's queue holds keys of its own rows, and is averaged where an epoch ends",
)
def moco(scope):
    return _train_queue(scope, False, ROWS - ROWS % BATCH)


@program(
    "the same with `byteps_kind = 'own'`", differs="a worker's queue holds keys of its own rows"
)
def moco_own(scope):
    return _train_queue(scope, False, ROWS - ROWS % BATCH, "own")
