"""Trainings that somebody is lost from; see test_training.py and server_kills.py."""

import hashlib
import time

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps


def fit_until_a_fault():
    """Trains for longer than the test waits; returns the error, when it came, and who was lost."""
    with bps.BytePSStrategy().scope():
        model = keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(2)])
        model.compile("sgd", "mse")

    class Announce(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                print("working", flush=True)

    rows = np.ones((640, 4), np.float32), np.ones((640, 2), np.float32)
    try:
        model.fit(*rows, batch_size=32, epochs=100_000, verbose=0, callbacks=[Announce()])
    except tf.errors.UnavailableError as error:
        when = time.monotonic()
        assert error.byteps_lost == bps.lost_process()
        lost = error.byteps_lost
        bps.shutdown()
        return [str(error), when, lost.role, lost.rank, lost.address, lost.reason]
    return None


def train_classifier(steps, times, compression="none", jit_compile="auto", embeds=False):
    """Trains a classifier for so many steps, so many times from the beginning; deterministic.

    Args:
        steps: of each training.
        times: how often to train.
        compression: the strategy's.
        jit_compile: as `compile` has it.
        embeds: whether it classifies rows of an embedding.

    Returns:
        A digest of the final weights of each training, and when each step ended, by the clock that
        all processes of a machine share.
    """
    tf.config.experimental.enable_op_determinism()
    strategy, ends = bps.BytePSStrategy(compression=compression), []
    digests = [_train_once(strategy, steps, ends, jit_compile, embeds) for _ in range(times)]
    bps.shutdown()
    return [digests, ends]


def _train_once(strategy, steps, ends, jit_compile, embeds):
    keras.utils.set_random_seed(1)
    random = np.random.default_rng(1)
    rows = random.normal(size=(1797, 64)).astype("float32"), random.integers(0, 10, size=1797)
    if embeds:
        ids = random.zipf(1.3, size=(1797, 16)) % 5000
        rows = ids.astype("int32"), rows[1]
    with strategy.scope():
        layers = [keras.Input([64]), keras.layers.Dense(128, activation="relu")]
        if embeds:
            embedding = keras.layers.Embedding(5000, 8)
            layers = [keras.Input([16], dtype="int32"), embedding, keras.layers.Flatten()]
        model = keras.Sequential([*layers, keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
        model.compile(optimizer, loss, jit_compile=jit_compile)

    class Progress(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            ends.append(time.monotonic())
            print(f"step {len(ends)}.", flush=True)

    dataset = tf.data.Dataset.from_tensor_slices(rows).repeat().batch(48)
    model.fit(dataset, steps_per_epoch=steps, epochs=1, verbose=0, callbacks=[Progress()])
    return hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights())).hexdigest()
