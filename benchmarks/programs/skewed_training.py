"""A worker that trains a classifier of digits, on rows of all labels or of some only."""

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tf_byteps
from benchmarks.programs.tensorflow_worker import join as join, leave as leave

_BATCH = 16  # of a worker
_TRAINED_ROWS = 1437  # of 1797


def train(is_sorted, local_steps, outer, steps, seed):
    """Trains from the beginning.

    Args:
        is_sorted: whether each worker has rows of some labels only, or of all.
        local_steps: how many come between two rounds; 0: gradients are exchanged in each step.
        outer: what `OuterSync` takes.
        steps: how many.
        seed: of the weights, of who has which rows, and of batches; the same on all workers.

    Returns:
        The share of other rows whose digit it predicts, in percent.
    """
    (x, y), (test_x, test_y) = _rows(is_sorted, seed)
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10, activation="softmax")]
    )
    model.build([None, x.shape[1]])
    applied = keras.optimizers.SGD(0.05, momentum=0.9)
    weights = model.trainable_variables
    loss_of = tf.keras.losses.sparse_categorical_crossentropy
    name = f"{is_sorted} {local_steps} {outer} {seed}"

    @tf.function(autograph=False)
    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(loss_of(labels, model(images, training=True)))
        gradients = tape.gradient(loss, [weight.value for weight in weights])
        if not local_steps:
            gradients = tf_byteps.push_pull(gradients, op="average", name=name)
        applied.apply(gradients, weights)

    together = tf_byteps.OuterSync(weights, local_steps, outer) if local_steps else None
    drawn = np.random.default_rng([seed, tf_byteps.rank()])
    for _ in range(steps):
        chosen = drawn.integers(0, len(x), _BATCH)
        step(tf.constant(x[chosen]), tf.constant(y[chosen]))
        if together is not None:
            together.step()
    if together is not None:
        together.finish()
    predicted = np.argmax(model(test_x), axis=-1)
    return 100 * float(np.mean(predicted == test_y))


def _rows(is_sorted, seed):
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    x, y = (images[order] / 16).astype(np.float32), labels[order]
    test = x[_TRAINED_ROWS:], y[_TRAINED_ROWS:]
    x, y = x[:_TRAINED_ROWS], y[:_TRAINED_ROWS]
    if is_sorted:
        order = np.argsort(y, kind="stable")
        x, y = x[order], y[order]
    size, rank = tf_byteps.size(), tf_byteps.rank()
    mine = slice(len(y) * rank // size, len(y) * (rank + 1) // size)
    return (x[mine], y[mine]), test
