"""The exchanges for JAX: `push_pull` inside and outside of `jax.jit`, and what is built on it.

TensorFlow is not imported.
"""

from tf_byteps.jax.collectives import broadcast, gather, push_pull
from tf_byteps.jax.errors import exchange_errors
from tf_byteps.jax.trees import (
    GradientTransformation,
    broadcast_tree,
    push_pull_tree,
    sum_gradients,
)

__all__ = [
    "GradientTransformation",
    "broadcast",
    "broadcast_tree",
    "exchange_errors",
    "gather",
    "push_pull",
    "push_pull_tree",
    "sum_gradients",
]
