"""Where a training is in its input, and how another one gets there.

tf.data can save an iterator with all that its stages hold: shuffle buffers and prefetched rows, for
each worker. Here the input is the same in every run and on all workers, so a number of batches says
as much. A training that goes on reads the batches before it again, and throws them away.

Those of earlier epochs are read only if what comes later depends on it: if a function of the
pipeline draws random numbers or calls Python, or a cache or `repeat` comes behind a shuffle.
Otherwise it is enough to begin as many iterations, as that is where a shuffle draws its order.
"""

import dataclasses
import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import keras

from tf_byteps.private.keras_tensorflow import TFEpochIterator
from tf_byteps.strategy.input import content, lengths
from tf_byteps.strategy.input.datasets import BytePSDataset

_TAKEN = "_byteps_taken"  # of an epoch iterator: batches taken when each iteration was begun
_REMEMBER = ("Repeat", "Cache", "Snapshot")  # in the names of stages

_resumed = weakref.WeakSet()  # models in an epoch of which an earlier training has made steps
_iterators = weakref.WeakKeyDictionary()  # model -> weak reference to what its `fit` reads


@dataclasses.dataclass(frozen=True)
class Position:
    """Where a training is in its input: what JSON can write.

    Attributes:
        iterations: for each iteration over the dataset that was begun, how many batches were taken
            of the one before.
        batches: how many were taken of the last.
        goes_on: whether the last iteration has not ended.
        length: batches of an iteration, or `None` if that is not known yet.
    """

    iterations: list[int]
    batches: int
    goes_on: bool
    length: int | None


def note(model: keras.Model, epoch_iterator: TFEpochIterator) -> None:
    """Notes what a model's `fit` reads its batches from, before it reads any."""
    _iterators[model] = of_model = weakref.ref(epoch_iterator)
    taken: list[int] = []
    setattr(epoch_iterator, _TAKEN, taken)

    def begin_iteration() -> None:
        taken.append(int(of_model()._steps_seen))

    epoch_iterator._distributed_dataset = epoch_iterator._distributed_dataset.noting(
        begin_iteration
    )


def of(model: keras.Model, in_epoch: bool, not_taken: int = 0) -> Position:
    """The position of a model's training.

    Args:
        model: a `keras.Model` in `fit`.
        in_epoch: whether an epoch has begun, so that batches of it are left perhaps.
        not_taken: how many batches Keras has counted already that are not taken yet.
    """
    iterator = _of(model)
    return Position(
        iterations=list(iterator.__dict__[_TAKEN]),
        batches=max(int(iterator._steps_seen) - not_taken, 0),
        goes_on=in_epoch or iterator._current_iterator is not None,
        length=iterator._num_batches,
    )


def content_of(model: keras.Model) -> Any:
    """What is seen of a training's data and their order: a value for JSON, see `content.same`."""
    return content.of_dataset(_of(model)._distributed_dataset._dataset)


def go_to(model: keras.Model, position: Position, batch: int) -> None:
    """Brings a training to a position, before its first epoch takes a batch.

    Args:
        model: a `keras.Model` in `fit`.
        position: of an earlier training with the same data.
        batch: the number of the epoch's next batch.
    """
    iterator = _of(model)
    all_matter = _all_batches_matter(iterator._distributed_dataset)
    current = None
    for number in range(len(position.iterations)):
        is_last = number + 1 == len(position.iterations)
        taken = position.batches if is_last else position.iterations[number + 1]
        current = iter(iterator._get_iterator())
        if all_matter or (is_last and position.goes_on):
            _throw_away(current, taken)
        iterator._steps_seen = taken
    iterator._num_batches = position.length
    iterator._current_iterator = current if position.goes_on else None
    if batch:
        _resumed.add(model)
        rest = _rest_of_epoch(iterator, batch)

        def enumerate_once() -> Iterator[Any]:
            del iterator._enumerate_iterator
            return rest

        iterator._enumerate_iterator = enumerate_once


def end_epoch(model: keras.Model) -> bool:
    """Whether an earlier training has made steps of the epoch that ends: this one may have made
    none."""
    was_resumed = model in _resumed
    _resumed.discard(model)
    return was_resumed


def _of(model: keras.Model) -> Any:
    return _iterators[model]()


def _throw_away(batches: Iterator[Any], count: int) -> None:
    for _ in itertools.islice(batches, count):
        pass


def _rest_of_epoch(iterator: TFEpochIterator, batch: int) -> Iterator[Any]:
    """What Keras's `_enumerate_iterator` gives from a batch on."""
    each, length = iterator.steps_per_execution, iterator._num_batches
    steps = iterator.steps_per_epoch or length
    iterator.data_adapter.on_epoch_begin()
    for step in itertools.count(batch, each):
        if (steps and step >= steps) or (length and iterator._steps_seen >= length):
            break
        iterator._steps_seen += each
        yield step, step + each - 1, iterator._current_iterator
    if length and iterator._steps_seen >= length:
        iterator._current_iterator = iter(iterator._get_iterator())
        iterator._steps_seen = 0
    iterator.data_adapter.on_epoch_end()


def _all_batches_matter(dataset: BytePSDataset) -> bool:
    stages = content.stages(dataset._dataset)
    return lengths.is_undetermined(stages[0]) or any(map(_remembers_an_order, stages))


def _remembers_an_order(stage: Any) -> bool:
    if not any(name in type(stage).__name__ for name in _REMEMBER):
        return False
    below = content.stages(stage)
    return any(getattr(each, "_reshuffle_each_iteration", False) for each in below)
