"""Checks of what the exchanges are given."""

import operator
from typing import Any

import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.ops import bitcast, names
from tf_byteps.types import ExchangeInput

_SUMMED = (
    tf.float32,
    tf.float64,
    tf.float16,
    tf.bfloat16,
    tf.int8,
    tf.uint8,
    tf.int32,
    tf.int64,
)
_COPIED = (*_SUMMED, *bitcast.DTYPES, tf.string)
_MAX_NAME_BYTES = 1024


def checked_tensor(tensor: ExchangeInput, what: str, copies: bool = False) -> tf.Tensor:
    """The tensor to exchange, after the checks that every operation needs.

    Args:
        tensor: what the user gave.
        what: the operation's name, for error messages.
        copies: whether it only copies, which it can do with more dtypes.
    """
    if isinstance(tensor, (tf.SparseTensor, tf.RaggedTensor)):
        raise TypeError(f"{what} takes dense tensors, got a {type(tensor).__name__}")
    tensor = tf.convert_to_tensor(tensor)
    dtypes = _COPIED if copies else _SUMMED
    if tensor.dtype not in dtypes:
        supported = ", ".join(dtype.name for dtype in dtypes)
        raise TypeError(
            f"{what} cannot exchange a tensor of dtype {tensor.dtype.name}; supported are "
            f"{supported}"
        )
    if not tf.executing_eagerly():
        graph = tf.compat.v1.get_default_graph()
        if not graph.building_function:
            raise RuntimeError(
                f"{what} works in eager code and in tf.function, not in a TensorFlow 1 graph"
            )
    return tensor


def exchange_name(name: str | None, kind: str) -> str:
    """The name that the user gave, checked, or one made of the place of the call."""
    if name is None:
        return names.unnamed(kind)
    if not isinstance(name, str) or not 0 < len(name.encode()) <= _MAX_NAME_BYTES:
        raise ValueError(f"name must be a string of 1 to {_MAX_NAME_BYTES} bytes, got {name!r}")
    return name


#: The engine learns the priority: see kBackwardOrder in cc/worker/state/exchange_request.h.
BACKWARD_ORDER = -(2**31)
FORWARD_ORDER = BACKWARD_ORDER + 1
_MOST_POSITIONS = 2**20


def forward_order_at(position: int) -> int:
    """FORWARD_ORDER for what the forward pass needs as this number: see ForwardOrderAt there."""
    return FORWARD_ORDER + 1 + min(position, _MOST_POSITIONS)


def checked_priority(priority: int | None) -> int:
    """The priority as the operations take it."""
    if priority is None:
        return BACKWARD_ORDER
    least = forward_order_at(_MOST_POSITIONS) + 1
    number = _integer(priority, "priority")
    if not least <= number < 2**31:
        raise ValueError(f"priority must be from {least} to {2**31 - 1}, got {priority}")
    return number


def checked_root_rank(root_rank: int) -> int:
    """The rank of the worker whose value counts. Before `init` no operation can run anyway."""
    number = _integer(root_rank, "root_rank")
    size = runtime.size() if runtime.is_initialized() else number + 1
    if not 0 <= number < size:
        raise ValueError(f"root_rank must be a rank from 0 to {size - 1}, got {number}")
    return number


def _integer(value: Any, what: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be an integer, got {value!r}") from None


def checked_gradient(gradient: str) -> str:
    """How the workers' gradients of one tensor are combined, as the operations take it."""
    if gradient not in ("average", "sum"):
        raise ValueError(f"gradient must be 'average' or 'sum', got {gradient!r}")
    return str(gradient)
