"""Checks of what the exchanges are given."""

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from tf_byteps.ops import names

_DTYPES = (
    tf.float32,
    tf.float64,
    tf.float16,
    tf.bfloat16,
    tf.int8,
    tf.uint8,
    tf.int32,
    tf.int64,
)
_MAX_NAME_BYTES = 1024


def checked_tensor(tensor, what):
    """The tensor to exchange, after the checks that every operation needs."""
    if isinstance(tensor, (tf.SparseTensor, tf.RaggedTensor)):
        raise TypeError(f"{what} takes dense tensors, got a {type(tensor).__name__}")
    tensor = tf.convert_to_tensor(tensor)
    if tensor.dtype not in _DTYPES:
        supported = ", ".join(dtype.name for dtype in _DTYPES)
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
        if control_flow_util.GraphOrParentsInXlaContext(graph):
            raise tf.errors.UnimplementedError(
                None, None, f"{what} cannot be compiled by XLA: compile with jit_compile=False"
            )
    return tensor


def exchange_name(name, kind, tensor):
    """The name that the user gave, checked, or one made of the place of the call."""
    if name is None:
        return names.unnamed(kind, tensor)
    if not isinstance(name, str) or not 0 < len(name.encode()) <= _MAX_NAME_BYTES:
        raise ValueError(f"name must be a string of 1 to {_MAX_NAME_BYTES} bytes, got {name!r}")
    return name


#: The engine learns the priority: see kBackwardOrder in cc/worker/exchange_request.h.
BACKWARD_ORDER = -(2**31)
FORWARD_ORDER = BACKWARD_ORDER + 1
_MOST_POSITIONS = 2**20


def forward_order_at(position):
    """FORWARD_ORDER for what the forward pass needs as this number: see ForwardOrderAt there."""
    return FORWARD_ORDER + 1 + min(position, _MOST_POSITIONS)


def checked_priority(priority):
    """The priority as the operations take it."""
    if priority is None:
        return BACKWARD_ORDER
    least = forward_order_at(_MOST_POSITIONS) + 1
    if not least <= int(priority) < 2**31:
        raise ValueError(f"priority must be from {least} to {2**31 - 1}, got {priority}")
    return int(priority)
