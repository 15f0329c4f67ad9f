"""A worker's piece of each batch that Keras takes from any input.

Every worker goes through all batches and cuts out its piece, on the host. A worker whose piece is
empty gets one row of the batch to compute with, which then counts nothing.
"""

import collections
import contextlib
import itertools
import math
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np
from keras import tree

from tf_byteps import runtime
from tf_byteps.errors import on_all_workers
from tf_byteps.exchange import content, host
from tf_byteps.exchange.object_gather import gather_objects

_END = object()
_FIRST = "_byteps_first_batch"  # of an iterator over epochs
_ENDLESS = -1  # tf.data.INFINITE_CARDINALITY
_local = threading.local()
_rows_of_last_step: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

# The rows of a worker's piece, and of the batch that it was cut out of.
Rows = tuple[int, int]
# How many batches an input has, and how many steps an epoch; `None`: nobody has said so.
Lengths = dict[str, float | None]


@contextlib.contextmanager
def cut(cuts: bool) -> Iterator[None]:
    """Whether the batches that Keras takes meanwhile, in this thread, are cut."""
    outer, _local.cuts = getattr(_local, "cuts", False), cuts
    try:
        yield
    finally:
        _local.cuts = outer
        _local.rows = None


@contextlib.contextmanager
def of_rows(rows: Rows) -> Iterator[None]:
    """The batch that Keras takes meanwhile is a piece of a batch, of these rows."""
    _local.rows = rows
    try:
        yield
    finally:
        _local.rows = None


def are_cut() -> bool:
    """Whether the batches that Keras takes now, in this thread, are cut."""
    return getattr(_local, "cuts", False)


def take_rows() -> Rows | None:
    """The rows of the batch that was cut last, once; `None` if it was not cut."""
    rows, _local.rows = getattr(_local, "rows", None), None
    return rows


def note_last_rows(model: Any, rows: int) -> None:
    """Keeps the rows of this worker's piece in a step for `last_rows`."""
    _rows_of_last_step[model] = rows


def last_rows(model: Any) -> int | None:
    """The rows of this worker's piece in the last step of a model, or `None`."""
    return _rows_of_last_step.get(model)


def get_iterator(original: Callable[..., Any], self: Any) -> Any:
    """`JAXEpochIterator._get_iterator`."""
    if not are_cut():
        return original(self)
    if getattr(_local, "builds", False):
        return (piece_of(batch)[0] for batch in _batches_of(self.data_adapter))
    if runtime.size() == 1:
        return _ahead(self, _noting_first(self, _batches_of(self.data_adapter)))
    return _Pieces(self)


def symbolic_build(
    original: Callable[..., Any], self: Any, iterator: Any = None, data_batch: Any = None
) -> None:
    """`JAXTrainer._symbolic_build`, which reads a batch if something is not built yet.

    That may be so on some workers only, such as one that is new in an elastic job: each reads by
    itself, and exchanges nothing.
    """
    outer, _local.builds = getattr(_local, "builds", False), True
    try:
        original(self, iterator, data_batch)
    finally:
        _local.builds = outer


def _ahead(epoch_iterator: Any, batches: Iterable[Any]) -> Iterable[Any]:
    """Batches that come to a GPU one step early, as Keras has them."""
    if jax.default_backend() == "cpu":
        return batches
    return epoch_iterator._one_batch_ahead_iterator(batches)


def _batches_of(adapter: Any) -> Iterator[Any]:
    """The batches of an input, which nobody may write to.

    An input is read from its beginning with the first batch, as by Keras: it may be shuffled.

    Keras copies those of a `tf.data.Dataset`. With images that takes as long as the step of a GPU:
    14 ms for 77 MB, in pages that the process has already.
    """
    dataset = getattr(adapter, "_dataset", None)
    specs = tree.flatten(getattr(dataset, "element_spec", None))
    if {type(spec).__name__ for spec in specs} == {"TensorSpec"}:
        yield from dataset.as_numpy_iterator()
    else:
        yield from adapter.get_jax_iterator()


def first_batch(epoch_iterator: Any) -> Any:
    """What was seen of the first batch that an iterator over epochs has read of the last epoch that
    it has begun: a value for JSON, see `content.same`. `None`: it has read none."""
    return getattr(epoch_iterator, _FIRST, None)


def _noting_first(epoch_iterator: Any, batches: Iterable[Any]) -> Iterator[Any]:
    for index, batch in enumerate(batches):
        if index == 0:
            setattr(epoch_iterator, _FIRST, _seen_of(batch))
        yield batch


def _seen_of(batch: Any) -> Any:
    # Sparse ones are several arrays to JAX.
    return content.of_arrays([np.asarray(each) for each in jax.tree.leaves(batch)])


class _Pieces:
    """This worker's pieces of the batches of an epoch."""

    def __init__(self, epoch_iterator: Any) -> None:
        self._rows: collections.deque[Rows] = collections.deque()
        adapter = epoch_iterator.data_adapter
        lengths = {"batches": _count(adapter), "steps": epoch_iterator.steps_per_epoch}
        whole = _noting_first(epoch_iterator, _batches_of(adapter))
        pieces = self._cut(epoch_iterator, _together(whole, lengths))
        self._pieces = iter(_ahead(epoch_iterator, pieces))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = next(self._pieces)
        _local.rows = self._rows.popleft()
        return batch

    def _cut(self, epoch_iterator: Any, batches: Iterable[Any]) -> Iterator[Any]:
        for index, batch in enumerate(batches):
            if index == 0:
                _check_same(first_batch(epoch_iterator))
            piece, rows = piece_of(batch)
            self._rows.append(rows)
            yield piece


def _count(adapter: Any) -> float | None:
    """How many batches there are, `math.inf` for a `tf.data.Dataset` that repeats for ever."""
    if adapter.num_batches is not None:
        return adapter.num_batches
    cardinality = getattr(getattr(adapter, "_dataset", None), "cardinality", None)
    is_endless = cardinality is not None and int(cardinality()) == _ENDLESS
    return math.inf if is_endless else None


def _together(batches: Iterator[Any], lengths: Lengths) -> Iterator[Any]:
    """The batches, which must end on all workers at once. Collectives: one small exchange, and one
    for each batch if some worker does not know how many there are."""
    _check_lengths(everyone := gather_objects("lengths of an epoch", lengths))
    if all(other["batches"] is not None for other in everyone):
        yield from batches
        return
    for index in itertools.count():
        batch = next(batches, _END)
        has_one = int(batch is not _END)
        asked = np.array([has_one, 1 - has_one], np.int32)
        (all_have, none_has) = host.exchange_all([asked], ["next batch"], kind="min")[0]
        if none_has:
            return
        if not all_have:
            everyone = gather_objects("who has a next batch", has_one)
            raise _differ(f"those of worker {everyone.index(0)} end after {index} batches")
        yield batch


def _check_lengths(everyone: list[Lengths]) -> None:
    for rank, other in enumerate(everyone):
        for what, length in other.items():
            first = everyone[0][what]
            if None not in (length, first) and length != first:
                raise _differ(f"worker 0 has {first} {what}, worker {rank} has {length}")


def _differ(how: str) -> Exception:
    return on_all_workers(
        ValueError(
            f"the workers' data differ in the length of an epoch: {how}. All workers need the same "
            "data, each takes its rows of every batch"
        )
    )


def piece_of(batch: Any) -> tuple[Any, Rows]:
    """Cuts this worker's piece out of a batch.

    Args:
        batch: a nested structure of arrays whose first axis is the batch's, and of `None`.

    Returns:
        The piece, in the same structure, and its rows. Where it is empty, it is the batch's first
        row.

    Raises:
        ValueError: an array has no such axis, or another number of rows.
    """
    arrays = [array for array in tree.flatten(batch) if array is not None]
    lengths: set[int] = {array.shape[0] if array.ndim else -1 for array in arrays}
    if len(lengths) != 1 or -1 in lengths:
        shapes = ", ".join(str(tuple(array.shape)) for array in arrays)
        raise ValueError(
            f"the arrays of a batch have the shapes {shapes}: to be cut among the workers, all "
            "must have the same number of rows"
        )
    (rows,) = lengths
    length = -(-rows // runtime.size())
    begin, end = (min(rows, rank * length) for rank in (runtime.rank(), runtime.rank() + 1))
    taken = slice(begin, end) if begin < end else slice(0, 1)
    piece = tree.map_structure(lambda array: None if array is None else array[taken], batch)
    return piece, (end - begin, rows)


def _check_same(seen: Any) -> None:
    """Compares what the workers have seen of their first batches of an epoch. A collective."""
    everyone = gather_objects("first batch", seen)
    for rank, other in enumerate(everyone):
        if not content.same(everyone[0], other):
            raise on_all_workers(
                ValueError(
                    f"the workers' data differ: the first batch of an epoch on worker {rank} is "
                    "not worker 0's. All workers need the same data in the same order, each takes "
                    "its rows of every batch: call keras.utils.set_random_seed before the data "
                    "are made"
                )
            )
