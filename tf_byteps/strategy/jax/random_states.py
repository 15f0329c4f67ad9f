"""The random numbers of Python and NumPy, by which Keras shuffles on JAX.

Every worker goes through all batches and takes its pieces, so that the shuffles must agree. Where
the program has seeded all workers alike, they do, as in one process. Otherwise worker 0's states
are taken over where a training and where each epoch begins.
"""

import hashlib
import random
from typing import Any

import keras
import numpy as np

from tf_byteps import runtime
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.exchange.objects import broadcast_object


def agree() -> None:
    """Gives all workers the states of worker 0. A collective."""
    if runtime.size() == 1:
        return
    states: list[Any] = [random.getstate(), np.random.get_state()]  # noqa: NPY002  (Keras's own)
    digest = hashlib.blake2b(repr(states[0]).encode(), digest_size=8)
    digest.update(np.asarray(states[1][1]).tobytes() + repr(states[1][2:]).encode())
    if len(set(gather_objects("random states", digest.hexdigest()))) == 1:
        return
    python, of_numpy = broadcast_object(states, name="random states of worker 0")
    if runtime.rank() != 0:
        random.setstate(python)
        np.random.set_state(of_numpy)  # noqa: NPY002


class Agree(keras.callbacks.Callback):
    """Lets all workers agree where an epoch begins."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        agree()
