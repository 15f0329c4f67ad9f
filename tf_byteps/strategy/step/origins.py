"""What the tensors of a traced step are computed from."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import tensorflow as tf

_COUNTS = frozenset({"Shape", "ShapeN", "Size"})
# Whose results all workers have in common.
_EXCHANGES = frozenset(
    {"BytePSPushPull", "BytePSPushPullAll", "BytePSBroadcast", "BytePSGather", "BytePSRowSum"}
)
# By which a number of rows becomes another tensor of it.
_FORMS = frozenset({"Cast", "Identity", "StridedSlice", "Squeeze", "Reshape", "GatherV2", "Unpack"})


def is_count(tensor: tf.Tensor, rows: tf.Tensor | int | None) -> bool:
    """Whether a tensor is the number of the rows that a step works on.

    Args:
        tensor: of the graph that is being traced.
        rows: of the worker's piece: an integer where it is known, else a tensor.
    """
    if tensor.shape.num_elements() != 1:
        return False
    value = tf.get_static_value(tensor)
    if value is not None:
        return isinstance(rows, int) and rows > 1 and float(value) == rows
    while tensor.op.type in _FORMS:
        tensor = tensor.op.inputs[0]
    return tensor.op.type in _COUNTS


def ancestors(tensors: Iterable[tf.Tensor], stop_at: Collection[Any] = ()) -> Iterator[tf.Tensor]:
    """What tensors are computed from, themselves included, within their graphs.

    Args:
        tensors: to begin with.
        stop_at: references of tensors (`Tensor.ref()`) behind which nothing is looked for.

    Yields:
        Each tensor once.
    """
    left, seen = [each for each in tensors if tf.is_symbolic_tensor(each)], set()
    while left:
        tensor = left.pop()
        if tensor.ref() in seen:
            continue
        seen.add(tensor.ref())
        yield tensor
        if tensor.ref() not in stop_at:
            left += tensor.op.inputs
            left += _outside(tensor)


def exchanged_behind(tensors: Iterable[tf.Tensor]) -> set[Any]:
    """References of the results of exchanges that tensors are computed from."""
    return {each.ref() for each in ancestors(tensors) if each.op.type in _EXCHANGES}


def _outside(tensor: tf.Tensor) -> list[tf.Tensor]:
    """What a function or branch got from outside as this tensor."""
    graph = tensor.graph
    if tensor.op.type != "Placeholder":
        return []
    captures = getattr(graph, "captures", [])
    return [out for out, own in captures if own is tensor and tf.is_symbolic_tensor(out)]
