"""What TensorFlow's programs call in Python of tables."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf


class _Objects:
    """Objects that a function in a program uses.

    TensorFlow keeps what `numpy_function` calls until the process ends. So this refers weakly: each
    object is there as long as its layer.

    Args:
        objects: by the names of their tables.
    """

    def __init__(self, objects: Mapping[str, object]) -> None:
        self._references = {name: weakref.ref(each) for name, each in objects.items()}

    def alive(self) -> list[Any]:
        """The objects.

        Raises:
            RuntimeError: one of them is gone.
        """
        found = {name: reference() for name, reference in self._references.items()}
        gone = [name for name, each in found.items() if each is None]
        if gone:
            raise RuntimeError(
                f"the table {gone[0]!r} is gone with its layer: keep the layer as long as "
                "functions are called that use it"
            )
        return list(found.values())


def called(
    function: Callable[..., Any], of: Mapping[str, object], inputs: list[Any], dtype: Any
) -> Any:
    """What a function in Python returns for the values of tensors.

    Args:
        function: of a list of the objects in `of`, and of as many arrays as inputs. It returns an
            array, or a tuple of them. It refers to no object that belongs to a layer.
        of: the objects that it uses, by the names of their tables. It is called as long as the
            layers are there that have them.
        inputs: tensors.
        dtype: of the result, or a list of those of the results.

    Returns:
        A tensor, or a list of them.
    """
    objects = _Objects(of)

    def call(*given: Any) -> Any:
        return function(objects.alive(), *given)

    if tf.executing_eagerly():
        found = call(*(each.numpy() for each in inputs))
        if isinstance(dtype, list):
            return [tf.convert_to_tensor(each) for each in found]
        return tf.convert_to_tensor(found)
    return tf.numpy_function(call, inputs, dtype)  # pyright: ignore[reportReturnType]
