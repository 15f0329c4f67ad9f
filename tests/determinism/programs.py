"""What the workers of the tests of determinism run; TensorFlow only where it is trained with."""

import hashlib
import time

import numpy as np

import tf_byteps
from tf_byteps import _engine

SECONDS = 40
ROUNDS = 8
SHAPES = ((1,), (1000,), (300, 17), (70000,))


def contribution(rank, name, round_number):
    """Numbers whose float32 sum depends on the order of addition."""
    key = f"{rank} {name} {round_number}".encode()
    generator = np.random.default_rng(int.from_bytes(hashlib.sha256(key).digest()[:8], "little"))
    shape = SHAPES[name]
    return (generator.normal(size=shape) * 2.0 ** generator.integers(-12, 12, shape)).astype("f4")


def in_order(order, name, round_number):
    """The sum of all workers' contributions, added in that order."""
    total = contribution(order[0], name, round_number)
    for rank in order[1:]:
        total = total + contribution(rank, name, round_number)
    return total


def sums(delays):
    """Exchanges everything with worker r `delays[round][r]` late; how many sums are in rank order.

    Returns:
        The number of sums that equal the one in rank order bit by bit, and of all.
    """
    tf_byteps.init()
    rank, size = tf_byteps.rank(), tf_byteps.size()
    right = total = 0
    for round_number in range(ROUNDS):
        time.sleep(delays[round_number % len(delays)][rank])
        handles = [
            _engine.exchange(contribution(rank, name, round_number), name=f"t{name}")
            for name in range(len(SHAPES))
        ]
        for name, handle in enumerate(handles):
            expected = in_order(range(size), name, round_number)
            right += bool((handle.wait(SECONDS) == expected).all())
            total += 1
    return [right, total, tf_byteps.runtime.config().deterministic]


def trained(late_rank, in_tensorflow):
    """Trains a small model whose worker `late_rank` is late in every step.

    Returns:
        A digest of the weights, and whether the job was deterministic.
    """
    import keras
    import tensorflow as tf

    if in_tensorflow:
        tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(7)
    strategy = tf_byteps.BytePSStrategy()

    class Late(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if tf_byteps.rank() == late_rank:
                time.sleep(0.03)

    generator = np.random.default_rng(3)
    images = generator.normal(size=(360, 20)).astype("f4")
    labels = generator.integers(0, 5, 360)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dropout(0.1, seed=1),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(5),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss)
    model.fit(images, labels, batch_size=36, epochs=3, verbose=0, callbacks=[Late()])
    digest = hashlib.sha256()
    for weights in model.get_weights():
        digest.update(np.ascontiguousarray(weights).tobytes())
    return [digest.hexdigest(), tf_byteps.runtime.config().deterministic]


def starts(deterministic_ranks):
    """What becomes of a job whose workers disagree; None if this one runs."""
    import os

    import tensorflow as tf

    if int(os.environ["BYTEPS_GLOBAL_RANK"]) in deterministic_ranks:
        tf.config.experimental.enable_op_determinism()
    try:
        tf_byteps.init()
    except tf_byteps.BytePSError as error:
        return str(error)
    return None
