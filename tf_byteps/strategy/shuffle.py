"""One shuffle seed for all workers (protocol rule 25).

Every worker shuffles the whole dataset and takes its pieces of each batch, so that the shuffles
must agree. Where the user gave none, the seed comes from worker 0. It is combined with the place in
the program and with a generation that grows whenever a dataset is distributed, which all workers do
together: a dataset made anew for each epoch is shuffled anew, and one that only one worker makes
changes nothing for the others.
"""

import hashlib
import random
import threading
import weakref

import tensorflow as tf
from tensorflow.python.eager import context

from tf_byteps import runtime
from tf_byteps.ops import names
from tf_byteps.strategy.agreement import gather_objects

_lock = threading.Lock()
_strategies = weakref.WeakSet()
_seed = 0
_generation = 0
_user_seed_in_use = None


def agree_on_seed(strategy):
    """Takes worker 0's seed for all workers: its user's, else a random one. A collective.

    In an elastic job it communicates with nobody, as others make no strategy when a worker comes
    late; without the user's the seed follows from the job's name.
    """
    global _seed
    mine = context.global_seed()
    if mine is None:  # a deterministic job has the same one in every run
        mine = 0 if runtime.config().deterministic else _drawn()
    is_elastic = runtime.config().elastic
    agreed = mine if is_elastic else gather_objects("shuffle seed", mine)[0]
    with _lock:
        _seed = agreed
        _strategies.add(strategy)


def _drawn():
    if not runtime.config().elastic:
        return random.SystemRandom().getrandbits(62)
    digest = hashlib.blake2b(runtime.config().job_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 2


def strategies():
    """All strategies of this process."""
    return list(_strategies)


def is_active():
    """Whether a `BytePSStrategy` is alive in this process."""
    return len(_strategies) > 0


def next_generation():
    """Makes later unseeded shuffles differ from earlier ones at the same place.

    All workers call it together.
    """
    global _generation
    with _lock:
        _generation += 1


def generation():
    """How often `next_generation` was called."""
    return _generation


def set_generation(number):
    """Goes on from a number that all workers have agreed on."""
    global _generation
    with _lock:
        _generation = number


def user_seed_in_use():
    """The user's `tf.random.set_seed` that an unseeded shuffle has followed, or `None`.

    It must agree on all workers.
    """
    return _user_seed_in_use


def seeds():
    """Two seeds for a shuffle that the user gave none: non-negative, equal on all workers."""
    global _user_seed_in_use
    with _lock:
        user_seed = context.global_seed()
        if user_seed is not None:
            _user_seed_in_use = user_seed
        base = _seed if user_seed is None else user_seed
        text = f"{names.call_site()}:{_generation}"
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return base, int.from_bytes(digest, "little") >> 2


def draws():
    """An endless dataset of int64 random numbers, the same on all workers, new each time."""
    first, second = seeds()
    return tf.data.Dataset.random(seed=(first ^ second) % 2**62, rerandomize_each_iteration=True)


def permutations(length):
    """A dataset of one element, a permutation of `range(length)`: another one in each iteration.

    Args:
        length: an integer.

    Returns:
        A `tf.data.Dataset` with one int64 tensor of shape `[length]`.
    """

    def permutation(draw):
        indices = tf.range(length, dtype=tf.int64)
        return tf.random.experimental.stateless_shuffle(indices, seed=tf.stack([draw, 0]))

    return draws().take(1).map(permutation)
