"""The random numbers of Python, NumPy and PyTorch, by which input is shuffled on the host.

A `keras.utils.PyDataset`, a generator or a `DataLoader` of PyTorch draws the order of its rows from
them. So does Keras on JAX for arrays. Every worker goes through all batches and takes its pieces:
the shuffles must agree. Where the program has seeded all workers alike, they do, as in one
process. Otherwise worker 0's states are taken over where a training and where each epoch begins.
"""

import hashlib
import random
import sys
from typing import Any

import numpy as np

from tf_byteps import runtime
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.exchange.objects import broadcast_object


def agree() -> None:
    """Gives all workers the states of worker 0. A collective."""
    if runtime.size() == 1:
        return
    mine = current()
    digest = hashlib.blake2b(repr(mine).encode(), digest_size=8).hexdigest()
    if len(set(gather_objects("random states", digest))) == 1:
        return
    of_worker_0 = broadcast_object(mine, name="random states of worker 0")
    if runtime.rank() != 0:
        restore(of_worker_0)


def current() -> list[Any]:
    """The states: a value for JSON, see `restore`.

    Returns:
        Python's, NumPy's and PyTorch's; `None` for that of PyTorch if the program does not use it.
    """
    name, words, *rest = np.random.get_state()  # noqa: NPY002  (Keras's own)
    torch = _torch()
    of_torch = None if torch is None else torch.get_rng_state().numpy().tobytes().hex()
    return [random.getstate(), [name, np.asarray(words).tolist(), *rest], of_torch]


def restore(states: list[Any]) -> None:
    """Sets the states.

    Args:
        states: a value of `current`, of this process or another one. What this process does not use
            is left out.
    """
    (version, words, gauss), (name, keys, *rest), of_torch = states
    random.setstate((version, tuple(words), gauss))
    np.random.set_state((name, np.array(keys, np.uint32), *rest))  # noqa: NPY002
    torch = _torch()
    if torch is not None and of_torch is not None:
        state = np.frombuffer(bytes.fromhex(of_torch), np.uint8).copy()
        torch.set_rng_state(torch.from_numpy(state))


def _torch() -> Any:
    """PyTorch, if the program has loaded it."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "get_rng_state") else None
