"""Random numbers of a step: each replica draws its own, while the generators stay alike.

All workers have the same seeds, so that a dropout would leave out the same units of every worker's
rows, and a GAN's noise would make the same images on each. In a replica a worker's rank is put into
the seed that is drawn. The state of the generator goes on as in one process, and with one worker,
outside of replicas and in initial values the numbers are those of one process.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.gradients.replica import in_our_replica
from tf_byteps.strategy.variables import is_made_by_keras

# Odd and large: ranks times it are far from the small numbers that users choose as seeds.
_STRIDE = 0x3C6EF373
_SEEDS = 2**31 - 1


def of_replica(
    original: Callable[..., Any], self: keras.random.SeedGenerator, *args: object, **kwargs: object
) -> Any:
    """`keras.random.SeedGenerator.next`."""
    seed = original(self, *args, **kwargs)
    offset = _offset()
    if not offset:
        return seed
    return seed + tf.constant([offset, 0], seed.dtype)


def of_operation(original: Callable[..., Any], op_seed: int | None) -> Any:
    """`get_seed` of TensorFlow's random operations, which the user's `set_seed` makes alike."""
    graph_seed, seed = original(op_seed)
    offset = _offset()
    if op_seed is not None or not isinstance(seed, int) or not offset:
        return graph_seed, seed
    # At least 1: operations take two zeros for "no seed".
    return graph_seed, (seed + offset) % _SEEDS + 1


def _offset() -> Any:
    """0 for worker 0, and where all workers must draw the same."""
    if is_made_by_keras() or not in_our_replica():
        return 0
    return runtime.rank() * _STRIDE % _SEEDS
