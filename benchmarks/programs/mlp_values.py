"""The initial weights and the batches of the perceptron, the same for all competitors."""

import numpy as np

LEARNING_RATE = 1e-3


def weights(width, layers):
    """Kernels and biases of `layers` square layers, float32."""
    generator = np.random.default_rng(1)
    values = []
    for _ in range(layers):
        kernel = generator.standard_normal((width, width), np.float32)
        values += [kernel * np.float32((2 / width) ** 0.5), np.zeros(width, np.float32)]
    return values


def batch(width, rows, rank):
    """One worker's rows, and what the model is to make of them."""
    generator = np.random.default_rng([2, rank])
    x = generator.standard_normal((rows, width), np.float32)
    return x, np.tanh(x)
