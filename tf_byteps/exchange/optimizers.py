"""The optimizers of a Keras model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import keras

    from tf_byteps.types import Optimizer


def optimizers_of(model: keras.Model) -> list[Any]:
    """A model's optimizers: its own, those that a training step of the program's uses besides, and
    those of the tables of `DistributedEmbedding`.

    Args:
        model: a `keras.Model`. Optimizers are looked for in its attributes, also in lists,
            tuples and dicts.

    Returns:
        A list of `keras.optimizers.Optimizer`, each once.
    """
    import keras

    values = [getattr(model, "optimizer", None)]
    for value in vars(model).values():
        if isinstance(value, dict):
            values += value.values()
        else:
            values += value if isinstance(value, (list, tuple)) else [value]
    values += table_optimizers_of(model)
    found = [value for value in values if isinstance(value, keras.optimizers.Optimizer)]
    return list({id(optimizer): optimizer for optimizer in found}.values())


def table_optimizers_of(model: keras.Model) -> list[Any]:
    """The optimizers of the tables of a model's `DistributedEmbedding` layers that have their own.

    Args:
        model: a `keras.Model`.
    """
    found = []
    for layer in model._flatten_layers():
        found += getattr(layer, "table_optimizers", {}).values()
    return found


def is_distributed(optimizer: Optimizer) -> bool:
    """Whether an optimizer is one that `DistributedOptimizer` has returned."""
    return hasattr(optimizer, "byteps_reduction")


def is_overwritten(variable: object) -> bool:
    """Whether a variable's gradient is its new value."""
    return getattr(variable, "overwrite_with_gradient", False)


def with_inner(optimizer: Optimizer) -> Iterator[Any]:
    """An optimizer, and those within a `LossScaleOptimizer` or a `MultiOptimizer`."""
    yield optimizer
    inner = getattr(optimizer, "inner_optimizer", None)
    for each in [inner] if inner is not None else getattr(optimizer, "_inner_optimizers", []):
        yield from with_inner(each)
