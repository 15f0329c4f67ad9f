"""All that tf_byteps uses of Keras's JAX backend without a strategy, beyond what is public."""

# ruff: noqa: F401

from keras.src.backend.jax.trainer import JAXTrainer
