"""One shuffle seed for all workers (protocol rule 25).

Every worker shuffles the whole dataset and takes its pieces of each batch, so that the shuffles
must agree. With a `tf.random.set_seed` of the user's, TensorFlow's own seeds are used, as in one
process; elastic jobs cannot. Where the user gave none, the seed comes from worker 0. It is combined
with the place in
the program and with a generation that grows whenever a dataset is distributed, which all workers do
together: a dataset made anew for each epoch is shuffled anew, and one that only one worker makes
changes nothing for the others. Datasets that a function makes for each worker are shuffled
differently on each.
"""

import contextlib
import hashlib
import random
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.ops import names
from tf_byteps.private.tensorflow import eager_context as context

_lock = threading.Lock()
_strategies = weakref.WeakSet()
_seed = 0
_generation = 0
_user_seed_in_use = None
_local = threading.local()


def agree_on_seed(strategy: tf.distribute.Strategy) -> None:
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


def _drawn() -> Any:
    if not runtime.config().elastic:
        return random.SystemRandom().getrandbits(62)
    digest = hashlib.blake2b(runtime.config().job_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 2


def strategies() -> list[Any]:
    """All strategies of this process."""
    return list(_strategies)


def is_active() -> bool:
    """Whether a `BytePSStrategy` is alive in this process."""
    return len(_strategies) > 0


def next_generation() -> None:
    """Makes later unseeded shuffles differ from earlier ones at the same place.

    All workers call it together.
    """
    global _generation
    with _lock:
        _generation += 1


def generation() -> Any:
    """How often `next_generation` was called."""
    return _generation


def set_generation(number: int) -> None:
    """Goes on from a number that all workers have agreed on."""
    global _generation
    with _lock:
        _generation = number


def user_seed_in_use() -> Any:
    """The user's `tf.random.set_seed` that an unseeded shuffle has followed, or `None`.

    It must agree on all workers.
    """
    return _user_seed_in_use


@contextlib.contextmanager
def of_this_worker() -> Iterator[Any]:
    """While active, shuffles that the user gave no seed are each worker's own."""
    before = _is_own()
    _local.own = True
    try:
        yield
    finally:
        _local.own = before


def _is_own() -> Any:
    return getattr(_local, "own", False)


def _user_seed() -> Any:
    """The user's `tf.random.set_seed`, which is then in use, or `None`."""
    global _user_seed_in_use
    seed = context.global_seed()
    if seed is not None and not _is_own():
        _user_seed_in_use = seed
    return seed


def is_as_in_one_process() -> bool:
    """Whether TensorFlow's own seeds are equal on all workers.

    They follow the user's, and how many were asked for before. A worker that joins an elastic job
    has asked for fewer.
    """
    return _user_seed() is not None and not _is_own() and not runtime.config().elastic


def seeds() -> Any:
    """Two seeds for a shuffle that the user gave none: non-negative, equal on all workers.

    Within `of_this_worker` they are this worker's.
    """
    user_seed = _user_seed()
    with _lock:
        base = _seed if user_seed is None else user_seed
        text = f"{names.call_site()}:{_generation}"
    if _is_own():
        text += f":{runtime.rank()}"
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return base, int.from_bytes(digest, "little") >> 2


def in_order(length: int) -> Any:
    """A dataset of one element, `range(length)` in int64."""

    def whole(_: tf.Tensor) -> Any:
        return tf.range(length, dtype=tf.int64)

    return tf.data.Dataset.range(1).map(whole)


def permutations(length: int) -> Any:
    """A dataset of one element, a permutation of `range(length)`: another one in each iteration.

    Args:
        length: an integer.

    Returns:
        A `tf.data.Dataset` with one int64 tensor of shape `[length]`.
    """
    return shuffled(in_order(length))


def _as_keras(element: tf.Tensor) -> Any:
    return tf.random.shuffle(element)


def shuffled(dataset: tf.data.Dataset) -> Any:
    """Shuffles each element of a dataset, alike on all workers and anew in each iteration.

    With a `tf.random.set_seed` of the user's it is done as Keras does it for arrays, and gives the
    order of a single process.

    Args:
        dataset: a `tf.data.Dataset` of vectors.

    Returns:
        A `tf.data.Dataset` of as many.
    """
    if _user_seed() is not None:
        # Keras has it in a function of its own, too, in which it is the first random operation.
        return dataset.map(_as_keras)

    def shuffle(element: tf.Tensor, draw: tf.Tensor) -> Any:
        shuffled = tf.random.experimental  # pyright: ignore[reportAttributeAccessIssue]
        return shuffled.stateless_shuffle(element, seed=tf.stack([draw, 0]))

    first, second = seeds()
    draws = tf.data.Dataset.random(seed=(first ^ second) % 2**62, rerandomize_each_iteration=True)
    return tf.data.Dataset.zip(dataset, draws).map(shuffle)
