"""Where a training on JAX is in its input, and how another one gets there.

The input is the same in every run and on all workers, so numbers of epochs and batches say where it
is. A training that goes on reads what comes before again, and throws it away: of arrays only the
batches of its epoch, whose order follows from the random numbers that Python and NumPy had there;
of all else also those of earlier epochs.
"""

import dataclasses
import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

from tf_byteps.exchange import content
from tf_byteps.strategy.fit import random_states
from tf_byteps.strategy.jax import batches

_epochs: weakref.WeakKeyDictionary[Any, "_Epochs"] = weakref.WeakKeyDictionary()


@dataclasses.dataclass
class _Epochs:
    """The input of one `fit` of a model.

    Attributes:
        begun: how many epochs have been read from the beginning, or are read now.
        states: of random numbers, where the present one began.
        iterator: a weak reference to what reads it.
        pending: where to go before the first epoch is read, and what is called if the epoch's first
            batch is another one there.
    """

    begun: int = 0
    states: list[Any] | None = None
    iterator: Any = None
    pending: tuple[dict[str, Any], int, Callable[[], None]] | None = None


def begin(model: Any) -> None:
    """The epochs of a `fit` begin: Keras has looked at a batch already, to build a model."""
    _epochs[model] = _Epochs()


def is_noted(model: Any) -> bool:
    """Whether `begin` was called for a model, which may be `None`."""
    return model is not None and model in _epochs


def is_resumed(model: Any) -> bool:
    """Whether an earlier training has made steps of a model's present epoch."""
    epochs = _epochs.get(model)
    if epochs is None or epochs.pending is None:
        return False
    position, batch, _ = epochs.pending
    return batch > 0 and epochs.begun == position["epochs"] + 1


def of(model: Any, in_epoch: bool) -> dict[str, Any]:
    """The position of a model's training, a value for JSON.

    Args:
        model: a `keras.Model` in `fit`.
        in_epoch: whether an epoch has begun.
    """
    epochs = _epochs[model]
    return {
        "epochs": epochs.begun - in_epoch,
        "states": epochs.states if in_epoch else random_states.current(),
        "first": batches.first_batch(epochs.iterator()) if in_epoch else None,
    }


def go_to(model: Any, position: dict[str, Any], batch: int, if_others: Callable[[], None]) -> None:
    """Brings a training to a position, before its first epoch takes a batch.

    Args:
        model: a `keras.Model` in `fit`.
        position: of an earlier training with the same data.
        batch: the number of the epoch's next batch.
        if_others: called when it shows that the data are others.
    """
    _epochs[model].pending = position, batch, if_others


def enumerate_epoch(original: Callable[..., Any], self: Any, model: Any) -> Iterator[Any]:
    """What Keras's `_enumerate_iterator` gives of an epoch, from where the training is to go on.

    Args:
        original: Keras's.
        self: an iterator over epochs.
        model: in whose `fit` it is read.
    """
    epochs = _epochs[model]
    pending = None if epochs.begun else epochs.pending
    if pending is None:
        _begin_epoch(epochs, self)
        yield from original(self)
        return
    position, batch, if_others = pending
    if isinstance(self.data_adapter, ArrayDataAdapter):
        epochs.begun = position["epochs"]
    while epochs.begun < position["epochs"]:
        epochs.begun += 1
        for each in original(self):
            _throw_away(self, each)
    random_states.restore(position["states"])
    _begin_epoch(epochs, self)
    for each in original(self):
        if each[0] < batch:
            _throw_away(self, each)
            if each[0] == 0 and not content.same(position["first"], batches.first_batch(self)):
                if_others()
        else:
            yield each


def _begin_epoch(epochs: _Epochs, epoch_iterator: Any) -> None:
    epochs.begun += 1
    epochs.iterator = weakref.ref(epoch_iterator)
    epochs.states = random_states.current()


def _throw_away(epoch_iterator: Any, step: tuple[int, int, Any]) -> None:
    for _ in itertools.islice(step[2], epoch_iterator.steps_per_execution):
        pass
