"""What is changed in Keras's and TensorFlow's input; see the package for why."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tf_byteps.exchange.strategies import is_ours
from tf_byteps.private.keras import ArrayDataAdapter
from tf_byteps.private.tensorflow import data_random_seed as random_seed
from tf_byteps.strategy.input import arrays, shuffle
from tf_byteps.wrapping import Change

_local = threading.local()


def changes() -> list[Change]:
    """Each an owner, the name of its attribute, and what replaces that."""
    return [
        (ArrayDataAdapter, "get_tf_dataset", _array_dataset),
        (random_seed, "get_seed", _dataset_seed),
    ]


@contextlib.contextmanager
def of_model(model: keras.Model) -> Iterator[None]:
    """Meanwhile Keras makes the input of a model, whose workers may share it, on this thread.

    Args:
        model: a `keras.Model` in its own `fit`, `evaluate` or `predict`.
    """
    outer = getattr(_local, "shares", False)
    _local.shares = is_ours(model.distribute_strategy)
    try:
        yield
    finally:
        _local.shares = outer


def draws_on_host(x: object) -> bool:
    """Whether the rows of what `Model.fit` is given may come in an order that Python draws.

    Args:
        x: a `keras.utils.PyDataset`, a generator, a loader of another library. TensorFlow draws for
            arrays and for its own datasets.
    """
    if isinstance(x, (tf.data.Dataset, tf.distribute.DistributedDataset)):
        return False
    return not all(hasattr(each, "shape") for each in keras.tree.flatten(x) if each is not None)


def _array_dataset(original: Callable[..., Any], self: ArrayDataAdapter) -> Any:
    if getattr(_local, "shares", False):
        return arrays.share(self)
    return original(self)


def _dataset_seed(original: Callable[..., Any], seed: int | None) -> Any:
    if seed is not None or not shuffle.is_active() or shuffle.is_as_in_one_process():
        return original(seed)
    return tuple(tf.constant(part, tf.int64) for part in shuffle.seeds())
