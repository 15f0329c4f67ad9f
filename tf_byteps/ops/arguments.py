"""Checks of what the exchanges are given."""

from collections.abc import Callable

import tensorflow as tf

from tf_byteps.exchange.names import checked
from tf_byteps.exchange.process_sets import ProcessSet, scope_of
from tf_byteps.ops import bitcast, names
from tf_byteps.types import ExchangeInput

_SUMMED = (tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int8, tf.uint8, tf.int32, tf.int64)
_COPIED = (*_SUMMED, *bitcast.DTYPES, tf.string)


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


def exchange_name(name: str | None, kind: str, workers: str = "") -> str:
    """The name that the user gave, checked, or one made of the place of the call; below `workers`,
    see `names.unnamed`."""
    its = names.unnamed(kind, workers) if name is None else checked(name)
    return names.in_scope(workers, its)


def names_for(kind: str) -> Callable[..., list[str]]:
    """A function of an exchange's arguments: the name of the one tensor that it sends."""

    def names_of(name: str | None, process_set: ProcessSet | None = None, **_: object) -> list[str]:
        return [exchange_name(name, kind, scope_of(process_set))]

    return names_of
