"""A step of the program's own that updates two layers by an optimizer each."""

import tensorflow as tf


def update_layers(model, data, first, second):
    """Trains `model`, of two layers with a kernel and a bias each. Returns the loss."""
    x, y = data
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
    variables = model.trainable_variables
    gradients = tape.gradient(loss, variables)
    first.apply(gradients[:2], variables[:2])
    second.apply(gradients[2:], variables[2:])
    return loss
