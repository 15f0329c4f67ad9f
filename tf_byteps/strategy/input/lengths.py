"""Datasets that may have another length on each worker, and what follows their end."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tf_byteps.private.tensorflow import op_def_registry
from tf_byteps.strategy.input import content

_UNKNOWN = int(tf.data.experimental.UNKNOWN_CARDINALITY)
_KEEP_LENGTH = ("_MapDataset", "_ParallelMapDataset")  # of the stages that have functions
# Operations with a state that has no influence on how long a dataset is.
_HARMLESS = ("Assert", "PrintV2", "Print", "LookupTable", "HashTable", "MutableHashTable")


_local = threading.local()


@contextlib.contextmanager
def ending_alone(whether: bool) -> Iterator[None]:
    """Meanwhile, on this thread, a worker whose data have ended does or does not wait for others.

    Where each worker makes its own number of steps, one that asks the others before each step would
    wait for those that wait for it in a round.

    Args:
        whether: it does not.
    """
    before = ends_alone()
    _local.ends_alone = whether
    try:
        yield
    finally:
        _local.ends_alone = before


def ends_alone() -> bool:
    """See `ending_alone`."""
    return getattr(_local, "ends_alone", False)


def may_differ(dataset: tf.data.Dataset) -> Any:
    """Whether workers with the same pipeline may get different numbers of elements of it.

    That is so if the length is not known, and what decides it (the predicate of a filter, a
    generator) or what it is decided by does what its input does not determine: draws random
    numbers, calls Python. Files are the same on all workers.

    Args:
        dataset: a `tf.data.Dataset`.
    """
    return int(dataset.cardinality()) == _UNKNOWN and _may_differ(dataset)


def _may_differ(dataset: tf.data.Dataset) -> Any:
    kind = type(dataset).__name__
    decides = "Unbatch" in kind or (dataset._functions() and kind not in _KEEP_LENGTH)
    return is_undetermined(dataset) if decides else any(map(_may_differ, dataset._inputs()))


def is_undetermined(dataset: tf.data.Dataset) -> bool:
    """Whether a function of a pipeline draws random numbers, calls Python or has another state.

    Args:
        dataset: a `tf.data.Dataset`.
    """
    graphs = [function.function.graph.as_graph_def() for function in dataset._functions()]
    return any(map(_has_state, graphs)) or any(map(is_undetermined, dataset._inputs()))


def is_pythons(dataset: tf.data.Dataset) -> bool:
    """Whether Python gives the batches of a pipeline, and nothing else draws random numbers.

    Args:
        dataset: a `tf.data.Dataset`.
    """
    functions = [each for stage in content.stages(dataset) for each in stage._functions()]
    graphs = [function.function.graph.as_graph_def() for function in functions]
    stateful = [each for graph in graphs for each in _operations(graph) if _is_stateful(each)]
    return bool(stateful) and all("PyFunc" in operation for operation in stateful)


def _has_state(graph: Any) -> bool:
    return any(map(_is_stateful, _operations(graph)))


def _operations(graph: Any) -> set[str]:
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    return {node.op for node in nodes}


def _is_stateful(operation: str) -> Any:
    # Sources of data are marked as stateful only so that they are not folded into constants.
    if "Dataset" in operation or operation.startswith(_HARMLESS):
        return False
    definition = op_def_registry.get(operation)
    return definition is not None and definition.is_stateful


def empty(spec: Any) -> Any:
    """An element without rows.

    Args:
        spec: the `tf.TypeSpec` of a component of batches.

    Returns:
        What the specification is of, with 0 rows; unknown lengths of other axes become 1.

    Raises:
        ValueError: the specification is of something else.
    """
    if isinstance(spec, tf.OptionalSpec):
        return tf.experimental.Optional.empty(  # pyright: ignore[reportAttributeAccessIssue]
            spec._element_spec
        )
    if spec.shape.rank:
        rest = [1 if length is None else length for length in spec.shape[1:]]
        if isinstance(spec, tf.TensorSpec):
            return tf.zeros([0, *rest], spec.dtype)
        if isinstance(spec, tf.SparseTensorSpec):
            indices = tf.zeros([0, spec.shape.rank], tf.int64)
            return tf.SparseTensor(indices, tf.zeros([0], spec.dtype), [0, *rest])
        if isinstance(spec, tf.RaggedTensorSpec):
            return _empty_ragged(spec, rest)
    raise ValueError(
        f"workers with datasets of different lengths need elements that are batches, got {spec}"
    )


def _empty_ragged(spec: Any, rest: list[int]) -> Any:
    value: Any = tf.zeros([0, *rest[spec.ragged_rank :]], spec.dtype)
    ragged: Any = tf.RaggedTensor
    for _ in range(spec.ragged_rank):
        value = ragged.from_row_splits(value, tf.zeros([1], spec.row_splits_dtype))
    return value
