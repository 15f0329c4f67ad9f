"""Trains in one process by a loop that calls optimizers by hand: what `fit` is compared with."""

import numpy as np
import tensorflow as tf


def train(model, x, y, batch, apply, epochs=2):
    """Trains with the mean of squares; returns the mean loss of each epoch.

    Args:
        model: a Keras model.
        x: a dictionary of its inputs' rows.
        y: what they should give.
        batch: rows of a batch.
        apply: a function of pairs of gradients and weights that updates the weights.
        epochs: their number.
    """
    found = []
    for _ in range(epochs):
        losses = []
        for begin in range(0, len(y), batch):
            inputs = {name: values[begin : begin + batch] for name, values in x.items()}
            with tf.GradientTape() as tape:
                errors = tf.square(model(inputs, training=True) - y[begin : begin + batch])
                loss = tf.reduce_mean(errors)
            weights = model.trainable_variables
            apply(list(zip(tape.gradient(loss, weights), weights, strict=True)))
            losses.append((float(loss), len(errors)))
        of_batches, rows = zip(*losses, strict=True)
        found.append(np.average(of_batches, weights=rows))
    return found
