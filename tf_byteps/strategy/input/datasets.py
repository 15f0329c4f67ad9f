"""What a `BytePSStrategy` makes of a dataset: this worker's share, an iterable of plain tensors."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_byteps.ops.device import own_device
from tf_byteps.strategy.input import building, fetching, pieces


class DistributedDataset(tf.distribute.DistributedDataset):
    """What `Model.fit` takes for a distributed dataset: it goes by names of classes and modules."""

    __module__ = "tensorflow.python.distribute.input_lib"


class BytePSDataset(DistributedDataset):
    """This worker's share of a distributed dataset: its elements are plain tensors.

    Where the worker has a GPU they are in its memory, and the next one is brought there meanwhile.

    Args:
        dataset: a `tf.data.Dataset`.
        known_shapes: a `building.KnownShapes`. Default: what the elements' specification says.
        fetches: whether elements may be brought to a GPU, and so be asked for ahead.
        is_cut: whether elements were cut out of others, and so lie where a GPU can read them.
        asks: whether the workers ask each other before each element if one of them has more.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        known_shapes: building.KnownShapes | None = None,
        fetches: bool = True,
        is_cut: bool = False,
        asks: bool = False,
    ) -> None:
        self._dataset = dataset
        self.asks = asks
        self._fetches = fetches
        self._is_cut = is_cut
        # The same on all workers: they must not differ in whether they read a batch.
        self.known_shapes = (
            building.known_shapes(dataset.element_spec) if known_shapes is None else known_shapes
        )

    def __iter__(self) -> Any:
        return iter(self._fetched if tf.executing_eagerly() else self._dataset)

    @functools.cached_property
    def _fetched(self) -> Any:
        # Made once: it takes longer than a step.
        device = own_device()
        if self._fetches and "GPU" in device and fetching.can_fetch(self.element_spec):
            source = self._dataset if self._is_cut else pieces.copied(self._dataset)
            return fetching.fetched(source, device)
        return self._dataset

    def on_host(self) -> Any:
        """The same, with its elements in the host's memory."""
        return BytePSDataset(self._dataset, self.known_shapes, False, self._is_cut, self.asks)

    def noting(self, begins: Callable[[], None]) -> Any:
        """The same, for one reader.

        Args:
            begins: called where that one begins to iterate.
        """
        return _Noting(self, begins)

    @property
    def element_spec(self) -> Any:
        """The structure of `tf.TypeSpec` that this worker's elements have."""
        return self._dataset.element_spec

    @property
    def cardinality(self) -> Any:
        """The number of steps, or one of the constants of `tf.data.experimental`."""
        return self._dataset.cardinality()

    def __len__(self) -> Any:
        return len(self._dataset)

    def reduce(self, initial_state: object, reduce_func: Callable[..., Any]) -> Any:
        """Combines this worker's elements. See `tf.data.Dataset.reduce`.

        A `for` loop in a `tf.function` becomes a call of this. Its state is empty if the loop
        changes nothing but variables, which `tf.data` does not know.
        """
        if tf.nest.flatten(initial_state):
            return self._dataset.reduce(initial_state, reduce_func)

        def step(count: tf.Tensor, element: object) -> Any:
            reduce_func(initial_state, element)
            return count + 1

        self._dataset.reduce(tf.constant(0, tf.int64), step)
        return initial_state


class _Noting(BytePSDataset):
    """See `BytePSDataset.noting`."""

    def __init__(self, dataset: BytePSDataset, begins: Callable[[], None]) -> None:
        self.__dict__.update(dataset.__dict__)
        self._of_all_readers = dataset
        self._begins = begins

    def __iter__(self) -> Any:
        self._begins()
        return iter(self._of_all_readers)
